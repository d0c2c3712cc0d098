"""Tunes the rows of the main table by coordinate descent: a key at a time, a change accepted if it
gains 3e-3 nats or more.

    scripts/reproduce.py tune --scale pico --tokens TOKENS --work RUNS --output docs/results/pico
    scripts/reproduce.py tune --scale 60m --budget 2 ...     # again, from what budget 1 found

Writes <output>/tuned.json, which the other scripts take their values from, and the trace of each
descent, which tuning_tables.py prints. Every optimizer may try the same number of points. Finished
runs are remembered: stopped at any time and started again, it takes the same way.
"""

import concurrent.futures
import json
import sys
from dataclasses import asdict, dataclass

from .. import repository
from ..files import write_whole
from ..sweeps import configuration
from ..sweeps.descent import descend
from .artefact import Artefact
from .rows import BY_KEY

GRIDS = repository.ROOT / "scripts/reproduce/grids.json"


@dataclass(frozen=True)
class Task:
    """One descent."""

    row: str
    phase: str  # of grids.json


def grids_of(scale):
    """What grids.json says for a scale, with keys that are null taken out."""
    everything = configuration.parse(GRIDS)
    found = configuration.merged(everything["common"], everything[scale])
    for phase in ("first", "again", "rate"):
        for rule, grid in found[phase].items():
            if isinstance(grid, dict):
                found[phase][rule] = {
                    key: values for key, values in grid.items() if values is not None
                }
    return found


class Tuning:
    """All descents of one scale and budget."""

    def __init__(self, artefact):
        self.artefact, self.grids = artefact, grids_of(artefact.scale)
        self.rows = self.grids["rows"]
        self.budget, self.seed = artefact.args.budget, artefact.seeds[0]
        self.runs_allowed = artefact.args.runs
        self.directory = artefact.output / "tuning"
        self.suffix = "" if self.budget == 1 else f"@{self.budget:g}"

    def all(self):
        """{row: {key: value}} of all rows."""
        if self.budget != 1:
            return self.tune(self.tasks("longer", "again"), self.artefact.tuned)
        first = self.tasks("first")
        found = self.tune(first, {task.row: self.start(task.row) for task in first})
        found_for = {BY_KEY[row].rule: point for row, point in found.items()}
        later = self.tasks("again") + self.tasks("rate")
        starts = {task.row: found_for.get(BY_KEY[task.row].rule) for task in later}
        if without := [row for row, point in starts.items() if point is None]:
            sys.exit(
                f"tune: error: {GRIDS}: rows.first: none with the rule of {', '.join(without)};"
                " expected one to start from"
            )
        return {**found, **self.tune(later, starts)}

    def tasks(self, which, phase=None):
        """The descents of the rows that grids.json names."""
        if strange := [row for row in self.rows[which] if row not in BY_KEY]:
            sys.exit(
                f"tune: error: {GRIDS}: rows.{which}: found {', '.join(strange)}, expected some of"
                f" {', '.join(BY_KEY)}"
            )
        return [Task(row, phase or which) for row in self.rows[which]]

    def start(self, row):
        """Where the first phase begins: the keys that its grid has."""
        return {key: self.grids["start"][key] for key in self.grids["first"][BY_KEY[row].rule]}

    def tune(self, tasks, starts):
        """{row: {key: value}}; the descents go on side by side, sharing the runner's places."""
        for task in tasks:
            if task.row not in starts:
                sys.exit(
                    f"tune: error: no values of {task.row} to start from in"
                    f" {self.artefact.tuned_from or 'tuned.json'}; tune at budget 1 first"
                )
        with concurrent.futures.ThreadPoolExecutor(len(tasks)) as pool:
            return dict(
                zip(
                    [task.row for task in tasks],
                    pool.map(lambda task: self.descend(task, starts[task.row]), tasks),
                )
            )

    def descend(self, task, start):
        phase = self.grids[task.phase]
        grid = phase[BY_KEY[task.row].rule]
        trace = descend(
            lambda points: self.losses(task.row, points),
            start,
            grid,
            self.runs_allowed or phase["runs"],
            on_sweep=lambda trace: self.write(task, trace),
        )
        self.write(task, trace)
        print(
            f"{task.row}: {trace.finished} after {trace.runs} runs, validation loss"
            f" {trace.loss:.4f} at {json.dumps(trace.point)}",
            flush=True,
        )
        return trace.point

    def losses(self, row, points):
        cells = [
            self.artefact.untuned_cell(
                BY_KEY[row], self.seed, self.length(), {**BY_KEY[row].changes, **point}
            )
            for point in points
        ]
        self.artefact.run(cells)
        results = [self.artefact.result(cell) for cell in cells]
        if None in results:
            sys.exit(
                f"tune: {row}: {results.count(None)} of {len(results)} runs failed; start again"
                " to retry them"
            )
        return [result.val_loss for result in results]

    def length(self):
        return self.grids["length"]["train.chinchilla"] * self.budget

    def write(self, task, trace):
        text = json.dumps(
            {
                "row": task.row,
                "phase": task.phase,
                "scale": self.artefact.scale,
                "seed": self.seed,
                "train.chinchilla": self.length(),
                **asdict(trace),
            },
            indent=1,
        )
        write_whole(self.directory / f"{task.row}{self.suffix}.json", text + "\n")


def add_arguments(parser):
    parser.add_argument(
        "--runs", type=int, help="points that a descent may try; default: the number in grids.json"
    )


def main(arguments=None):
    artefact = Artefact("tune", __doc__, arguments, add_arguments)
    if artefact.args.no_wait:
        sys.exit(
            "tune: error: --no-wait: each sweep depends on the previous one's result; leave it out"
        )
    _ = artefact.runner  # made before the descents share it
    tuning = Tuning(artefact)
    found = {row + tuning.suffix: point for row, point in tuning.all().items()}
    known = configuration.parse(path) if (path := artefact.output / "tuned.json").exists() else {}
    write_whole(path, json.dumps({**known, **found}, indent=1) + "\n")
    print(f"written: {path}")
    return 1 if artefact.failed else 0
