"""Runs a program, and says how long it took and how much memory it had at its peak."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import typing

WAITING = {
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "2000",
}  # of benchmarks, as mpretrain sets it for itself
SHOWN = 1500  # characters of what a failed program said


class Failed(Exception):
    """A program was not there, ended with an error, or took too long."""


class Finished(typing.NamedTuple):
    output: str
    seconds: float
    peak_bytes: int


class Termination:
    """Of this script. One that comes while a program is being started waits until there is a
    process to end.
    """

    starting, signal = False, None

    @classmethod
    def come(cls, number, _):
        cls.signal = number
        if not cls.starting:
            sys.exit(128 + number)

    @classmethod
    def catch_up(cls):
        cls.starting = False
        if cls.signal:
            sys.exit(128 + cls.signal)


def end_children_when_terminated():
    """A SIGTERM becomes an exception, as Ctrl-C is one, so that run() ends what it waits for."""
    signal.signal(signal.SIGTERM, Termination.come)


def run(command, environment=None, timeout=3600.0):
    """The environment's entries come on top of this process's.

    The peak is the kernel's ru_maxrss of the child (KiB on Linux): of the largest single process if
    it starts others.
    """
    command = [str(part) for part in command]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        begin = time.perf_counter()
        Termination.starting = True
        try:
            process = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdout=output,
                stderr=errors,
                stdin=subprocess.DEVNULL,
            )
        except OSError as problem:
            Termination.catch_up()
            raise Failed(f"{command[0]}: {problem.strerror}; expected a program") from problem
        watch = threading.Timer(timeout, process.kill)
        try:
            watch.start()
            Termination.catch_up()
            status, usage = os.wait4(process.pid, 0)[1:]
        except (
            BaseException
        ):  # interrupted: nothing is left running that would disturb the next measurement
            process.kill()
            raise
        finally:
            watch.cancel()
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(
            status
        )  # so that Popen does not wait for it again
        output.seek(0)
        errors.seek(0)
        said, complained = output.read(), errors.read()
    if process.returncode:
        late = f" (stopped after {timeout:.0f} s)" if seconds >= timeout else ""
        tail = (complained.strip() or said.strip())[-SHOWN:]
        raise Failed(
            f"{pathlib.Path(command[0]).name}: exit status {process.returncode}{late}: {tail}"
        )
    return Finished(said, seconds, usage.ru_maxrss * 1024)
