"""How a cell's program is started: as a process, under mpirun or torchrun, or as part of a Slurm
job array.

A launcher has
    default_jobs    cells at a time
    settle_seconds  how long results may take to be seen here after the program has ended
    stop_advice     what becomes of the cells when this process is told to stop, if it has to be
                    said
    announce(tasks, work, jobs)
                    is told of all new tasks, and that jobs of them may run at a time, before any of
                    them is run
    run(task, log, stop)
                    runs one to its end, its output going to the end of the open file
                    <work>/<name>.log; returns how it ended, in words, STOPPED if it was stopped and
                    can go on, or None if it has not ended: it stays in a queue
"""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass

from .. import repository, with_parent
from .machine import machine
from .slurm import Slurm, executable

SCRIPTS = repository.ROOT / "scripts/launch"
WITH_PARENT = with_parent.__file__
MACHINE = (  # begins the line of a log that says where the run was; array_cell.sh writes it, too
    "sweep: machine "
)
STOPPED_STATUS = 75  # of mpretrain: a signal stopped it, and what it had done is saved
STOPPED = "stopped by a signal; the next start resumes from its checkpoint"
ACCEPTED = "local, mpirun:RANKS, torchrun:RANKS, slurm or slurm:RANKS"


@dataclass(frozen=True)
class Task:
    """A program to run: its arguments, and the name of its directory."""

    name: str
    arguments: tuple


class Processes:
    """On this machine. The program ends with this process: it saves a checkpoint when told to or
    orphaned.
    """

    settle_seconds, stop_advice = 0, ""

    def __init__(self, program, starter, threads, jobs, **environment):
        self.program, self.starter, self.default_jobs = program, starter, jobs
        self.environment = {
            "OMP_NUM_THREADS": str(threads),
            "OMP_WAIT_POLICY": "passive",
            **environment,
        }

    def announce(self, tasks, work, jobs):
        self.program = executable(self.program)

    def run(self, task, log, stop):
        log.write(f"{MACHINE}{machine()}\n".encode())
        command = [*(self.starter or [self.program]), *task.arguments]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", WITH_PARENT, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **self.environment, "MPRETRAIN": self.program},
        )
        with stop.passed_to(process):
            return ending(process.wait())


def ending(code):
    """An exit status in words."""
    if code == STOPPED_STATUS:
        return STOPPED
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def launcher_of(text, program, threads=1, wait=True):
    """From `local`, `mpirun:RANKS`, `torchrun:RANKS`, `slurm` or `slurm:RANKS`."""
    kind, _, ranks = text.partition(":")
    well_formed = {"local": text == "local", "slurm": text == "slurm" or _is_count(ranks)}.get(
        kind, _is_count(ranks)
    )
    if kind not in ("local", "mpirun", "torchrun", "slurm") or not well_formed:
        sys.exit(f"--launcher {text}: expected {ACCEPTED}, with RANKS of 1 or more")
    if not wait and kind != "slurm":
        sys.exit(
            f"--no-wait: what --launcher {text} starts ends with this program; slurm alone has a"
            " queue"
        )
    if kind == "local":
        return Processes(program, [], threads, max(1, (os.cpu_count() or 1) // threads))
    if kind == "mpirun":
        return Processes(program, [str(SCRIPTS / "mpirun.sh"), ranks], threads, 1)
    if kind == "torchrun":
        return Processes(program, [str(SCRIPTS / "torchrun.sh")], threads, 1, RANKS=ranks)
    return Slurm(program, ranks, wait)


def _is_count(text):
    return text.isascii() and text.isdigit() and int(text) > 0
