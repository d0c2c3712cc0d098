"""What is running, what is done and how long it may still take: a table on a terminal, plain lines
in a log.
"""

import collections
import heapq
import math
import os
import shutil
import statistics
import sys
import time

from ..runs.metrics import record_of
from .cell import Cell
from .runner import OPEN, parameters_of, steps_of

STATES = ("running", "elsewhere", "waiting", "queued", "finished", "diverged", "failed", "stopped")
TOLD = ("finished", "diverged", "failed")  # a line of its own
LINE_SECONDS = 60  # between lines of a log that say how things stand
DRAW_SECONDS = 1  # between drawings on a terminal
TAIL_BYTES = 16384  # of metrics.jsonl: the last records, also long ones
NEVER = -math.inf


# --- where a run is


class Position:
    """The step that a running cell is at and its speed, of the last records of its metrics."""

    def __init__(self, path):
        records = list(_last_records(path))
        steps = [record for record in records if "event" not in record]
        self.step = records[-1]["step"] if records else 0
        self.step_seconds = _mean(record.get("step_seconds") for record in steps)
        self.tokens_per_second = _mean(record.get("tokens_per_second") for record in steps)


def _last_records(path):
    """Records with a step, of the end of a file that is being written to."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return
    for line in lines[:-1]:  # what stands behind the last end of line is not whole yet
        if record := record_of(line):
            yield record


def _mean(values):
    """Of the numbers among the values, NaN if there is none."""
    numbers = [
        value for value in values if isinstance(value, (int, float)) and math.isfinite(value)
    ]
    return statistics.fmean(numbers) if numbers else math.nan


# --- how long it will take


class Speeds:
    """Seconds a step, from the cells that this session ran: of the same config, else by the size of
    model and step.
    """

    def __init__(self, statuses, positions):
        self.seconds, self.steps, self.work = collections.Counter(), collections.Counter(), 0.0
        for cell, status in statuses.items():
            if status.state in ("finished", "diverged") and status.seconds > 0:
                self._add(cell, status.seconds, status.result.steps - status.resumed_at)
        for cell, position in positions.items():
            if math.isfinite(position.step_seconds) and cell.config not in self.steps:
                self._add(cell, position.step_seconds, 1)

    def _add(self, cell, seconds, steps):
        if steps > 0:
            self.seconds[cell.config] += seconds
            self.steps[cell.config] += steps
            self.work += steps * work_of_step(cell)

    def step_seconds(self, cell):
        """NaN while nothing is measured."""
        if self.steps[cell.config]:
            return self.seconds[cell.config] / self.steps[cell.config]
        return (
            sum(self.seconds.values()) / self.work * work_of_step(cell) if self.work else math.nan
        )


def work_of_step(cell):
    """What a step's time is roughly proportional to: parameters times tokens."""
    return parameters_of(cell) * cell.value("batch.tokens_per_step", 131072)


def seconds_left(statuses, positions, jobs):
    """Until the last cell ends: each takes its steps at its speed, and whoever is free takes the
    next that waits.
    """
    speeds = Speeds(statuses, positions)
    if not speeds.work:
        return math.nan
    running = [
        _remaining_steps(cell, positions) * speeds.step_seconds(cell)
        for cell, status in statuses.items()
        if status.state in ("running", "elsewhere")
    ]
    workers = sorted(running + [0.0] * (jobs - len(running)))  # sorted: a heap
    for cell, status in statuses.items():
        if status.state == "waiting":
            heapq.heapreplace(workers, workers[0] + steps_of(cell) * speeds.step_seconds(cell))
    return max(workers)


def _remaining_steps(cell, positions):
    return max(0, steps_of(cell) - (positions[cell].step if cell in positions else 0))


def duration(seconds):
    """5 s, 12 min, 3 h 05 min; ? if it is not known."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"


# --- showing it


def common_changes(cells):
    """What is changed in all of them alike and need not be said; nothing of a single one."""
    cells = list(cells)
    return set.intersection(*(set(cell.changes) for cell in cells)) if len(cells) > 1 else set()


def label(cell, common=frozenset()):
    """A cell for people, without the changes that are common."""
    shown = Cell(cell.config, tuple(change for change in cell.changes if change not in common))
    return (
        f"{cell.config.removesuffix('.json')} seed {cell.seed} {shown.described_changes()}".strip()
    )


class LiveTable:
    """Called with {cell: Status} whenever one changes and now and then between."""

    def __init__(self, name, jobs, file=None, names=None):
        self.name, self.jobs = name, jobs
        self.names = {} if names is None else names  # {cell: text}, where label() is not enough
        self.file = file or sys.stderr
        self.terminal = self.file.isatty()
        self.start, self.last, self.drawn, self.told = time.monotonic(), NEVER, 0, set()

    def __call__(self, statuses):
        try:
            self._show(statuses)
        except OSError:  # whoever looked on has left; the cells go on
            self.drawn = 0

    def _show(self, statuses):
        ended = [
            cell
            for cell, status in statuses.items()
            if status.state not in OPEN and cell not in self.told
        ]
        goes_on = any(status.state in OPEN for status in statuses.values())
        due = time.monotonic() - self.last >= (DRAW_SECONDS if self.terminal else LINE_SECONDS)
        if not (ended or (goes_on and due)):
            return
        self._erase()
        for cell in ended:
            self.told.add(cell)
            if statuses[cell].state in TOLD or statuses[cell].error:
                print(self._ended_line(cell, statuses), file=self.file)
        if not goes_on:
            print(self._summary(statuses), file=self.file)
        elif due or self.terminal:
            self._draw(statuses)
        self.file.flush()

    def _ended_line(self, cell, statuses):
        status = statuses[cell]
        what = {
            "finished": f"loss {status.result.val_loss:.4f}" if status.result else "",
            "diverged": "diverged",
            "failed": f"FAILED: {status.error}",
            "stopped": status.error,
        }[status.state]
        which = self._label(cell, common_changes(statuses))
        return (
            f"{self.name} {len(self.told)}/{len(statuses)} {which}: {what} |"
            f" {duration(status.seconds)}"
        )

    def _draw(self, statuses):
        self.last = time.monotonic()
        positions = {
            cell: Position(status.metrics)
            for cell, status in statuses.items()
            if status.state in ("running", "elsewhere")
        }
        line = (
            f"{self._summary(statuses)}, about"
            f" {duration(seconds_left(statuses, positions, self.jobs))} left"
        )
        if not self.terminal:
            print(line, file=self.file)
            return
        columns, rows = shutil.get_terminal_size()
        lines = [line, *self._rows(positions, common_changes(statuses), max(1, rows - 3))]
        for text in lines:
            print(text[: columns - 1], file=self.file)
        self.drawn = len(lines)

    def _summary(self, statuses):
        counts = collections.Counter(status.state for status in statuses.values())
        told = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
        return f"{self.name}: {told} | {duration(time.monotonic() - self.start)}"

    def _label(self, cell, common):
        return self.names.get(cell) or label(cell, common)

    def _rows(self, positions, common, most):
        """Numbers first: what a narrow terminal cuts off is the end of the label."""
        lines = []
        for cell, position in positions.items():
            steps = steps_of(cell)
            left = (steps - position.step) * position.step_seconds
            rate = (
                f"{position.tokens_per_second:,.0f}"
                if math.isfinite(position.tokens_per_second)
                else "?"
            )
            numbers = f"{position.step:>8}/{steps:<8} {rate:>10} tok/s {duration(left):>10} left"
            lines.append(f"{numbers}  {self._label(cell, common)}")
        return (
            lines
            if len(lines) <= most
            else [*lines[: most - 1], f"  and {len(lines) - most + 1} more"]
        )

    def _erase(self):
        if self.drawn:
            self.file.write(f"\x1b[{self.drawn}A\x1b[J")
            self.drawn = 0
