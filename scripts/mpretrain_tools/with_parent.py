#!/usr/bin/env python3
"""Becomes the program of its arguments, which is sent SIGTERM when the process that started it
ends, however it ends.

    with_parent.py PID_OF_THE_PARENT PROGRAM [ARGUMENT ...]

So a runner that is killed leaves nothing running: its cells save a checkpoint and end. A process of
its own, because nothing may be run between fork and exec of a program with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, program = int(sys.argv[1]), sys.argv[2]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:  # it ended before
        sys.exit("the runner has exited")
    try:
        os.execvp(program, sys.argv[2:])
    except OSError as problem:
        sys.exit(f"{program}: {problem.strerror}")
