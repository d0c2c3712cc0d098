"""Hyperparameters that are tuned: where they may lie, and how far a range is widened.

A knob has a range from low to high on a log or linear scale, or a list of values. One that is a
ratio is searched as such and set as the ratio times the value of another key.
"""

import math
from dataclasses import dataclass, replace

from ..sweeps.configuration import BadConfig

DIGITS = 4  # of a value that is searched: more say nothing, and make long tables


@dataclass(frozen=True)
class Knob:
    """One dimension of a search."""

    key: str
    low: float = math.nan
    high: float = math.nan
    scale: str = "log"  # log | linear
    values: tuple = ()  # instead of a range
    step: float = 0.0  # values of a grid: low, low * step, ... (log) or low, low + step, ...
    count: int = 0  # values of a grid instead of a step
    anchor: float = math.nan  # a value of the grid by step, where it is not low
    ratio_of: str = ""
    least: float = -math.inf  # a range is not widened beyond these
    most: float = math.inf

    def at(self, u):
        """The value at a share 0 <= u < 1 of the range."""
        if self.values:
            return self.values[min(int(u * len(self.values)), len(self.values) - 1)]
        if self.step:
            grid = self.grid()
            return grid[min(int(u * len(grid)), len(grid) - 1)]
        if self.scale == "log":
            return rounded(self.low * (self.high / self.low) ** u)
        return rounded(self.low + (self.high - self.low) * u)

    def place(self, value):
        """The share of the range below a value: what at() inverts."""
        if self.scale == "log":
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def grid(self):
        """All values of a grid; () where the knob has neither step nor count."""
        if self.values:
            return self.values
        if self.step:
            first, last = -_steps(self, self.low, -1), _steps(self, self.high, 1)
            return tuple(self._stepped(index) for index in range(first, last + 1))
        last = self.count - 1
        return tuple(self.at(index / last) for index in range(self.count)) if last > 0 else ()

    def _stepped(self, index):
        origin = self.origin()
        if self.scale == "log":
            return rounded(origin * self.step**index)
        return rounded(origin + self.step * index)

    def origin(self):
        return self.low if math.isnan(self.anchor) else self.anchor

    def spacing(self):
        """A grid by count as one by step, so that it goes on outside its range."""
        if self.values or self.step or self.count < 2:
            return self
        width = self.high / self.low if self.scale == "log" else self.high - self.low
        step = width ** (1 / (self.count - 1)) if self.scale == "log" else width / (self.count - 1)
        return replace(self, step=step, count=0, anchor=self.low)

    def edge(self, value, margin):
        """low or high where the value is the first or last of a grid, or within the margin of the
        range's end; else nothing.
        """
        if grid := (self.values or (self.grid() if self.step else ())):
            if len(grid) < 3 or isinstance(value, (bool, str)) or value is None:
                return ""
            return {min(grid): "low", max(grid): "high"}.get(value, "")
        place = self.place(value)
        return "low" if place <= margin else "high" if place >= 1 - margin else ""

    def widened(self, side, factor):
        """The knob with its range moved on at one side; itself where it may not be."""
        if self.values:
            return self
        knob = replace(self.spacing(), anchor=self.origin())
        reach = factor if self.scale == "log" else (factor - 1) * (self.high - self.low)
        if knob.step:  # whole steps, at least one
            step = math.log(knob.step) if self.scale == "log" else knob.step
            wanted = math.log(reach) if self.scale == "log" else reach
            number = max(1, math.floor(wanted / step + 1e-9))
            reach = knob.step**number if self.scale == "log" else knob.step * number
        if self.scale == "log":
            low, high = self.low / reach, self.high * reach
        else:
            low, high = self.low - reach, self.high + reach
        if side == "low":
            return _limited(self, replace(knob, low=max(rounded(low), self.least)))
        return _limited(self, replace(knob, high=min(rounded(high), self.most)))

    def described(self):
        """For tables."""
        if self.values:
            return "{" + ", ".join(shown(value) for value in self.values) + "}"
        times = f" × {self.ratio_of}" if self.ratio_of else ""
        return f"{shown(self.low)} to {shown(self.high)}, {self.scale}{times}"


def _limited(old, new):
    return old if (new.low, new.high) == (old.low, old.high) else new


def _steps(knob, value, sign):
    """Whole steps from the grid's origin to a value, up (1) or down (-1)."""
    if knob.scale == "log":
        steps = math.log(value / knob.origin()) / math.log(knob.step)
    else:
        steps = (value - knob.origin()) / knob.step
    return math.floor(sign * steps + 1e-3)


def rounded(value):
    return float(f"{value:.{DIGITS}g}")


def shown(value):
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings(point, knobs, base):
    """{key: value} of a configuration from {knob's key: value searched}; base(key): what the
    configuration has where no knob sets it.
    """
    found = {knob.key: point[knob.key] for knob in knobs if not knob.ratio_of}
    for knob in knobs:
        if knob.ratio_of:
            other = found.get(knob.ratio_of, base(knob.ratio_of))
            if other is None:
                raise BadConfig(
                    f"{knob.key}: ratio_of {knob.ratio_of}: found nothing there, expected a knob or"
                    " a key that the configuration sets"
                )
            found[knob.key] = rounded(point[knob.key] * other)
    return found
