"""What others use of the processors beside a measurement, other guests of a virtual machine's host
included.

From the kernel's counts (proc(5), /proc/stat), which are in ticks of 10 ms: measurements of half a
second and more.
"""

import math
import os
import pathlib
import resource
import time

BUSY = 0.1  # cores that others may use before a measurement counts as disturbed


def is_disturbed(others):
    return others > BUSY  # NaN, unknown, is not


class Clock:
    """Runs while something is measured by this process or by children that it waits for.
    Afterwards: others, in cores; NaN where the kernel does not count.
    """

    def __enter__(self):
        self.begin = self._now()
        return self

    def __exit__(self, *_):
        wall, busy, own = (after - before for after, before in zip(self._now(), self.begin))
        self.others = max((busy - own) / wall, 0.0)  # in this order: NaN stays

    @staticmethod
    def _now():
        own = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
        spent = sum(usage.ru_utime + usage.ru_stime for usage in own)
        try:
            user, nice, system, _, _, irq, soft, steal = map(
                int, pathlib.Path("/proc/stat").read_text("utf-8").split()[1:9]
            )
            busy = (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            busy = math.nan
        return time.monotonic(), busy, spent


def least_disturbed(measure, attempts):
    """(what measure() gave, others): of the first that was not disturbed, else of the least
    disturbed of all attempts.
    """
    best = None
    for _ in range(attempts):
        with Clock() as clock:
            found = measure()
        if best is None or clock.others < best[1]:
            best = found, clock.others
        if not is_disturbed(best[1]):
            break
    return best
