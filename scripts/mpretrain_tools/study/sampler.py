"""Points of a search: a grid, random ones, or Sobol's sequence, and more of them where the ranges
were widened.
"""

import itertools
import random

from . import sobol

SAMPLERS = ("grid", "random", "sobol")
DRAWS = 100_000  # of which points outside the old ranges are taken


class Space:
    """The points of one arm, in the order in which they are tried. The same seed draws the same
    shares of the ranges for all arms.
    """

    def __init__(self, knobs, sampler, seed):
        self.sampler, self.seed = sampler, seed
        self.knobs = [knob.spacing() for knob in knobs] if sampler == "grid" else list(knobs)
        self._drawn, self._known = 0, set()

    def first(self, count):
        """The first points: all of a grid, else `count`."""
        if self.sampler == "grid":
            values = itertools.product(*(knob.grid() for knob in self.knobs))
            return [self._taken(point) for point in values]
        return self._outside([], count)

    def widen(self, sides, factor):
        """{key: (old range, new range)} of the knobs moved on; sides: {key: low or high}."""
        moved = {}
        for index, knob in enumerate(self.knobs):
            if knob.key in sides and (new := knob.widened(sides[knob.key], factor)) is not knob:
                moved[knob.key] = (knob, new)
                self.knobs[index] = new
        return moved

    def more(self, count, best, moved):
        """`count` new points: outside the old ranges of the moved knobs, else among the others."""
        old = [knob for knob, _ in moved.values()]
        if self.sampler == "grid":
            return self._near(count, best, old)
        return self._outside(old, count)

    # --- grids

    def _near(self, count, best, old):
        """Next to the best point: on the new part of the grid; of a grid that was not widened, half
        a step between its points.
        """
        axes = [_places(knob) for knob in self.knobs]
        if not old:
            axes = [_halved(knob, places) for knob, places in zip(self.knobs, axes)]
        centre = [_index(places, best[knob.key]) for knob, places in zip(self.knobs, axes)]
        candidates = sorted(
            itertools.product(*(range(len(places)) for places in axes)),
            key=lambda indices: sum(abs(a - b) for a, b in zip(indices, centre)),
        )
        found = []
        for indices in candidates:
            point = tuple(places[index] for places, index in zip(axes, indices))
            if len(found) < count and point not in self._known and self._is_new(point, old):
                found.append(self._taken(point))
        return found

    # --- sequences

    def _outside(self, old, count):
        found = []
        for _ in range(DRAWS):
            if len(found) == count:
                break
            point = tuple(knob.at(u) for knob, u in zip(self.knobs, self._next()))
            if point not in self._known and (not old or self._is_new(point, old)):
                found.append(self._taken(point))
        return found

    def _next(self):
        index = self._drawn
        self._drawn += 1
        if self.sampler == "sobol":
            return sobol.shifted(index, len(self.knobs), self.seed)
        draw = random.Random(f"random {self.seed} {index}")
        return [draw.random() for _ in self.knobs]

    def _is_new(self, point, old):
        """Outside the old range of one of the moved knobs; any point where none was."""
        place = {knob.key: value for knob, value in zip(self.knobs, point)}
        return not old or any(not knob.low <= place[knob.key] <= knob.high for knob in old)

    def _taken(self, point):
        self._known.add(tuple(point))
        return {knob.key: value for knob, value in zip(self.knobs, point)}


def _places(knob):
    return list(knob.grid())


def _halved(knob, places):
    """With a value between any two; of a list of values, the list."""
    if knob.values:
        return places
    between = [
        (a * b) ** 0.5 if knob.scale == "log" else (a + b) / 2
        for a, b in itertools.pairwise(places)
    ]
    return sorted([*places, *(float(f"{value:.4g}") for value in between)])


def _index(places, value):
    return places.index(value) if value in places else len(places) // 2
