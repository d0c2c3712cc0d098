"""The time that a call has, written as 9m, 540s or 540."""

import argparse
import math
import re
import time

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
# Kept of a budget: for ending a command that does not stop by itself, the archive and the report.
MOST_RESERVED = 15.0


def seconds_of(text):
    """For argparse."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"'{text}' is no time; expected 9m, 540s or 540")
    return float(found[1]) * UNITS[found[2]]


class Budget:
    """Without seconds there is no end. `spent` are seconds that the call took before."""

    def __init__(self, seconds=None, spent=0.0, clock=time.monotonic):
        self.clock = clock
        self.whole = math.inf
        self.end = math.inf
        if seconds is not None:
            self.whole = seconds - min(MOST_RESERVED, seconds / 10)
            self.end = clock() - spent + self.whole

    def left(self):
        return self.end - self.clock()
