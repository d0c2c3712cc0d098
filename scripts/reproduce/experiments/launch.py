"""How a cell's program is started."""

import os
import subprocess


class Local:
    """On this machine, as one process."""

    def __init__(self, program, threads):
        self.program, self.threads = program, threads
        self.default_jobs = max(1, (os.cpu_count() or 1) // threads)

    def run(self, arguments, log):
        """Exit status; what the program prints goes to the end of the file `log`."""
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads), "OMP_WAIT_POLICY": "passive"}
        with open(log, "a", encoding="utf-8") as output:
            return subprocess.run([self.program, *arguments], stdin=subprocess.DEVNULL, stdout=output,
                                  stderr=subprocess.STDOUT, env=environment, check=False).returncode


def launcher_of(text, program, threads):
    """From `local`, `mpirun:RANKS`, `torchrun:RANKS` or `slurm`."""
    if text == "local":
        return Local(program, threads)
    raise SystemExit(f"launcher {text!r}: expected local")
