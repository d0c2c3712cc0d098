"""What a study's ledger holds of a finished cell: the result, which program and which text it is
of, and its curve, so that all can be drawn when the run's directory is gone.
"""

import dataclasses
import datetime
import json
import math
import statistics
from dataclasses import dataclass

from ..runs.metrics import Run
from ..sweeps.ledger import Ledger, Result
from ..sweeps.runner import outcome
from . import updates

POINTS = 20  # of a curve
FEWEST = 5  # evaluations that make a curve of their own
LOSS_DIGITS = 5


@dataclass
class Row(Result):
    """A cell by one program. The same cell may have a row of another program."""

    cell: str = ""  # what the result depends on but program and text
    corpus: str = ""  # 16 hex digits of the shards' SHA-256
    program: str = ""  # what it computes (program.py)
    protocol: str = ""  # 16 hex digits of its SHA-256 when the cell was run
    ended: str = ""  # UTC
    train_loss: float = math.nan  # mean over the last twentieth of the steps
    curve: str = ""  # JSON: step and train (means up to the step), val_step and val
    updates: str = ""  # JSON: updates.py

    @property
    def key(self):
        return self.fingerprint, self.program

    @property
    def points(self):
        return json.loads(self.curve) if self.curve else {}


class OfProgram:
    """The rows of one program, as a runner asks for them."""

    def __init__(self, ledger, program):
        self.ledger, self.program = ledger, program

    def read(self):
        self.ledger.read()

    def get(self, fingerprint):
        return self.ledger.get((fingerprint, self.program))

    def add(self, row):
        self.ledger.add(row)


def ledger(path):
    return Ledger(path, Row)


def collector(shown_config, **provenance):
    """A runner's `collect` that makes Rows; shown_config(cell): the file as the study calls it."""

    def collect(cell, place, version):
        result = outcome(cell, place, version)
        if result is None:
            return None
        run = Run(place.directory(cell))
        curve = summary(run)
        found = {**dataclasses.asdict(result), "config": shown_config(cell)}
        return Row(
            **found,
            **provenance,
            cell=cell.identity(),
            ended=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            train_loss=curve["train"][-1] if curve["train"] else math.nan,
            curve=json.dumps(curve, separators=(",", ":")),
            updates=updates.compact(run),
        )

    return collect


def summary(run):
    """Of a run's metrics: the mean training loss of each of POINTS spans of its steps, and up
    to as many evaluations, equally spaced.
    """
    steps, losses = run.series("loss")
    found = {"step": [], "train": []}
    number = min(POINTS, len(steps))
    for index in range(number):
        first, last = len(steps) * index // number, len(steps) * (index + 1) // number
        finite = [loss for loss in losses[first:last] if math.isfinite(loss)]
        if finite:
            found["step"].append(steps[last - 1])
            found["train"].append(updates.digits(statistics.fmean(finite), LOSS_DIGITS))
    steps, losses = run.series("val_loss")
    if len(steps) >= FEWEST:
        number = min(POINTS, len(steps))
        chosen = [len(steps) * (index + 1) // number - 1 for index in range(number)]
        found["val_step"] = [steps[place] for place in chosen]
        found["val"] = [updates.digits(losses[place], LOSS_DIGITS) for place in chosen]
    return found
