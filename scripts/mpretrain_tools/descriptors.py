"""Holds standard descriptors that are closed where a script starts: under a daemon, cron or
`>&-`. The next files it opened would take their numbers, and what its children print would land in
them; sys.stdout would be None. What is written there is dropped, and reading finds the end.
"""

import os
import sys

# By number: how it is opened, its name in sys and the mode there.
STANDARD = ((os.O_RDONLY, "stdin", "r"), (os.O_WRONLY, "stdout", "w"), (os.O_WRONLY, "stderr", "w"))


def is_closed(number):
    try:
        os.fstat(number)
    except OSError:
        return True
    return False


def hold():
    """Opens those that are closed to /dev/null, for this process and its children."""
    for number, (flags, name, mode) in enumerate(STANDARD):
        if not is_closed(number):
            continue
        opened = os.open(os.devnull, flags)  # the lowest number that is free: this one
        os.set_inheritable(opened, True)
        stream = open(opened, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
