"""Cells as a Slurm job array: one submission for all that wait, one element a cell.

An array is described in <work>/slurm/<job name>/ before it is submitted, and Slurm's queue is asked
by that name. So whoever starts later, after a crash or after --no-wait, knows which cells are in
the queue and submits only the others.
"""

import contextlib
import fcntl
import getpass
import json
import os
import pathlib
import secrets
import shlex
import shutil
import subprocess
import threading
import time

from .. import repository

LAUNCH = repository.ROOT / "scripts/launch"
LARGEST_ARRAY = 1000  # Slurm's MaxArraySize is 1001 where nobody changed it


class LaunchError(Exception):
    """A launcher cannot start anything."""


def executable(program):
    """Its path; LaunchError if there is none."""
    path = shutil.which(program)
    if path is None:
        raise LaunchError(
            f"--program {program}: no such executable; scripts/test.sh builds build/*/mpretrain"
        )
    return os.path.abspath(path)


class Slurm:
    """A launcher. SBATCH_ARGUMENTS holds options for sbatch: partition, time, account, GPUs."""

    default_jobs = 64  # elements of an array that Slurm runs at a time
    settle_seconds = 60  # until a network file system shows what another machine wrote
    stop_advice = " Jobs in Slurm's queue stay there."

    def __init__(self, program, ranks, wait, poll_seconds=15):
        self.program, self.ranks, self.wait, self.poll_seconds = program, ranks, wait, poll_seconds
        self._elements = {}  # name of a task: (job name, index)
        self._queue, self._asked = (
            set(),
            -float("inf"),
        )  # what it held when it last answered, when it was last asked
        self._asking = threading.Lock()

    # --- submitting

    def announce(self, tasks, work, jobs):
        """Submits those that are not in the queue."""
        self.program = executable(self.program)
        work = pathlib.Path(work).resolve()
        (work / "slurm").mkdir(parents=True, exist_ok=True)
        with self._asking, open(work / "slurm/lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one runner at a time decides what is missing
            self._elements.update(self._known(work / "slurm"))
            self._queue = self._ask()
            missing = [task for task in tasks if self._elements.get(task.name) not in self._queue]
            for first in range(0, len(missing), LARGEST_ARRAY):
                self._submit(missing[first : first + LARGEST_ARRAY], work, jobs)

    def _submit(self, tasks, work, jobs):
        job = f"mpretrain-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        directory = work / "slurm" / job
        directory.mkdir(parents=True)
        lines = [
            shlex.join([str(work / f"{task.name}.log"), self.program, *task.arguments])
            for task in tasks
        ]
        (directory / "cells").write_text("\n".join(lines) + "\n", encoding="utf-8")
        names = json.dumps([task.name for task in tasks], indent=1)
        (directory / "names.json").write_text(names + "\n", encoding="utf-8")
        ranks = (
            [f"--ntasks-per-node={self.ranks}", f"--gpus-per-node={self.ranks}"]
            if self.ranks
            else []
        )
        self._call(
            [
                "sbatch",
                f"--job-name={job}",
                f"--array=0-{len(tasks) - 1}%{jobs}",
                f"--output={directory}/%a.out",
                *ranks,
                *shlex.split(os.environ.get("SBATCH_ARGUMENTS", "")),
                str(LAUNCH / "slurm.sbatch"),
                str(directory / "cells"),
            ],
            MPRETRAIN=str(LAUNCH / "array_cell.sh"),
        )
        submitted = {task.name: (job, index) for index, task in enumerate(tasks)}
        self._elements.update(submitted)
        self._queue.update(submitted.values())

    @staticmethod
    def _known(directory):
        """{name of a task: (job name, index)} of all arrays, the latest counting."""
        found = {}
        for path in sorted(directory.glob("*/names.json")):
            names = json.loads(path.read_text(encoding="utf-8"))
            found.update({name: (path.parent.name, index) for index, name in enumerate(names)})
        return found

    # --- waiting

    def run(self, task, log, stop):
        """Waits until the task has left the queue."""
        while self._is_queued(task):
            if stop or not self.wait:
                return None
            time.sleep(min(0.5, self.poll_seconds))
        job, index = self._elements[task.name]
        output = pathlib.Path(log.name).parent / "slurm" / job / f"{index}.out"
        said = (
            output.read_text(encoding="utf-8", errors="replace").split("\n")
            if output.exists()
            else []
        )
        last = next((line.strip() for line in reversed(said) if line.strip()), "")
        return f"left Slurm's queue ({job}_{index}{': ' + last if last else ''})"

    def _is_queued(self, task):
        with self._asking:
            if time.monotonic() - self._asked > self.poll_seconds:
                # A controller that is busy says nothing about the job.
                with contextlib.suppress(LaunchError):
                    self._queue = self._ask()
                self._asked = time.monotonic()
            return self._elements[task.name] in self._queue

    def _ask(self):
        """{(job name, index)} of all that wait or run."""
        said = self._call(
            ["squeue", "--noheader", "--array", f"--user={getpass.getuser()}", "--format=%j %K"]
        )
        pairs = [line.split() for line in said.splitlines()]
        return {(pair[0], int(pair[1])) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}

    @staticmethod
    def _call(command, **environment):
        try:
            environment = {**os.environ, **environment}
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env=environment
            )
        except OSError as problem:
            raise LaunchError(
                f"{command[0]}: {problem.strerror}; --launcher slurm needs it on PATH"
            ) from problem
        if done.returncode != 0:
            said = done.stderr.strip() or f"ended with status {done.returncode}"
            raise LaunchError(f"{shlex.join(command)}: {said}")
        return done.stdout
