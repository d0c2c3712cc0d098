"""A whole study: its arms, shared values, tuning, results and comparisons. reader.py makes it of a
file.
"""

import pathlib
from dataclasses import dataclass, field

from ..sweeps.cell import Cell
from .arms import Arms


@dataclass(frozen=True)
class Shared:
    """A sweep that chooses values once for several arms."""

    name: str
    arms: tuple  # that are swept
    targets: tuple  # arms that take the values
    values: dict  # {key: [value, ...]}
    at: dict  # {key: [value, ...]}: of each arm the best of these counts
    seed: int
    budget: float
    changes: dict


@dataclass(frozen=True)
class Rung:
    """A round of successive halving."""

    budget: float
    points: int = 0  # of the first rung; 0: the whole grid
    keep: int = 0  # of the others


@dataclass(frozen=True)
class Tuning:
    """A group of arms that are searched alike."""

    name: str
    arms: tuple
    seed: int
    sampler: str
    sampler_seed: int
    rungs: tuple
    widen_times: int
    widen_factor: float
    widen_points: int
    edge: float  # the share of a range next to its end that is called the edge
    changes: dict


@dataclass(frozen=True)
class Results:
    """Runs that are reported."""

    name: str
    arms: tuple
    budget: float
    seeds: tuple
    changes: dict
    scale: str


@dataclass(frozen=True)
class Comparison:
    """A hypothesis, or a difference that is only described."""

    name: str
    kind: str
    arms: tuple  # (a, b), of an interaction ((a1, a2), (b1, b2))
    results: str
    margin: float
    family: str


@dataclass
class Study:
    """What the file says; made by read()."""

    path: pathlib.Path
    arms: Arms
    quick: float = 1.0  # what all budgets are multiplied by; 1 but for a trial
    title: str = ""
    protocol: pathlib.Path = None
    corpus: str = ""
    programs: tuple = ()  # (): any
    repeat: int = 0
    ledger: pathlib.Path = None
    changes: dict = field(default_factory=dict)
    shared: list = field(default_factory=list)
    tuning: list = field(default_factory=list)
    results: list = field(default_factory=list)
    comparisons: list = field(default_factory=list)
    untested: list = field(default_factory=list)  # Comparisons that are described with intervals

    def arm(self, name):
        return self.arms.by_name[name]

    def cell(self, name, seed, budget, *changes, scale=""):
        """A run of an arm, `budget` in multiples of 20 tokens a parameter; later changes count."""
        arm = self.arm(name)
        return Cell.of(
            self.arms.config_of(arm.config, scale or self.arms.scale),
            {"train.chinchilla": budget, "seed": seed},
            self.changes,
            arm.changes,
            *changes,
        )

    def described(self, name, cell):
        """What is changed in a cell, but for what the arm always has."""
        own = {**self.changes, **(self.arm(name).changes if name in self.arms.by_name else {})}
        changes = tuple((key, value) for key, value in cell.changes if own.get(key) != value)
        return Cell(cell.config, changes).described_changes()

    def tuned_in(self, name):
        """The Tuning whose values an arm takes, None if it is not tuned."""
        name = self.arm(name).tuned_as or name
        return next((group for group in self.tuning if name in group.arms), None)

    @property
    def output(self):
        """Where its pages belong: beside the file; those of a trial in a directory of its own."""
        return self.path.parent if self.quick == 1 else self.path.parent / "quick"

    def parts(self):
        """Names that --only takes, besides arms."""
        return [part.name for part in (*self.shared, *self.tuning, *self.results)]
