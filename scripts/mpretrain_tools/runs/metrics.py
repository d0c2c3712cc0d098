"""Reads what a run recorded: its metrics.jsonl, whole or torn, resumed or not, and the manifest of
its tokens.

A record torn by a crash is passed over; where a step was recorded twice the last record counts;
what was recorded beyond the step that a run resumed from is dropped, for the resumed run did not
build on it.
"""

import itertools
import json
import math
import os
import pathlib
import statistics
import sys

# Where a step stands on an axis: its label.
AXES = {"step": "step", "tokens": "tokens", "seconds": "seconds of training steps"}


class BadRun(Exception):
    """There is nothing to read where a run was expected."""


class NoSteps(BadRun):
    """A run that has not recorded a step, or not yet."""


def number(value):
    """A recorded value as a float; null and text such as "nan" are NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    return float(value)


MISSING = object()


def value_of(record, key):
    """What a record has under a key, or under a path of keys; MISSING if it has nothing there."""
    for name in key if isinstance(key, tuple) else (key,):
        if not isinstance(record, dict) or name not in record:
            return MISSING
        record = record[name]
    return record


def record_of(line):
    """The record of a line; None where it is torn or of no step."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None


class Run:
    """The records of one run, by step."""

    def __init__(self, path):
        path = pathlib.Path(path)
        self.path = path / "metrics.jsonl" if path.is_dir() else path
        self.name = self.path.parent.name
        self.steps = {}
        try:
            with open(self.path, encoding="utf-8", errors="replace") as lines:
                for line in filter(str.strip, lines):
                    self._take(line)
        except OSError as problem:
            if isinstance(problem, FileNotFoundError) and path.is_dir():
                raise NoSteps(
                    f"{path}: no metrics.jsonl in it, so no step is recorded"
                ) from problem
            raise BadRun(
                f"{self.path}: {problem.strerror}; expected a run directory or its metrics.jsonl"
            ) from problem
        if not self.steps:
            raise NoSteps(f"{self.path}: no step is recorded in it")

    def _take(self, line):
        record = record_of(line)
        if record is None:
            return
        step = record["step"]
        if record.get("event") == "resume":
            self.steps = {s: r for s, r in self.steps.items() if s <= step}
        elif "event" not in record:
            self.steps[step] = {**self.steps.get(step, {}), **record}

    def series(self, key):
        """([step...], [value...]) of the steps that recorded the key, or the path of keys, in
        order.
        """
        found = [
            (step, number(value))
            for step, record in sorted(self.steps.items())
            if (value := value_of(record, key)) is not MISSING
        ]
        return [step for step, _ in found], [value for _, value in found]

    def places(self, axis):
        """{step: its place on an axis of AXES}; seconds add up over the steps that count, without
        what lies between them.
        """
        if axis == "step":
            return {step: step for step in self.steps}
        key = {"tokens": "tokens", "seconds": "step_seconds"}[axis]
        steps, values = self.series(key)
        if not steps:
            raise BadRun(f"{self.path}: no {key} is recorded in it, which --x {axis} needs")
        if axis == "seconds":
            values = itertools.accumulate(
                value if math.isfinite(value) else 0.0 for value in values
            )
        return dict(zip(steps, values))

    def curve(self, key, axis="step"):
        """([place...], [value...]) of the steps that recorded the key, in order, on an axis of
        AXES.
        """
        places = self.places(axis)
        found = [(places[step], value) for step, value in zip(*self.series(key)) if step in places]
        return [place for place, _ in found], [value for _, value in found]

    def validation_sets(self):
        """The names of its validation sets, if they have names."""
        return sorted(
            {name for record in self.steps.values() for name in record.get("validation", ())}
        )

    def last(self, key):
        """The last value recorded under the key, NaN where there is none."""
        values = self.series(key)[1]
        return values[-1] if values else math.nan

    def median(self, key):
        values = [value for value in self.series(key)[1] if math.isfinite(value)]
        return statistics.median(values) if values else math.nan


def labelled_run(text):
    """(label, run) of LABEL=PATH, or of PATH alone, which is labelled by its directory."""
    label, separator, path = text.partition("=")
    if separator and not os.path.exists(text):
        return label, Run(path)
    run = Run(text)
    return run.name, run


def labelled_runs(texts):
    """Of all that recorded a step; the others are named in a line each. At least one has to
    have.
    """
    found, empty = [], []
    for text in texts:
        try:
            found.append(labelled_run(text))
        except NoSteps as problem:
            empty.append(str(problem))
    if not found:
        raise NoSteps("; ".join(empty))
    for problem in empty:
        print(f"skipped: {problem}", file=sys.stderr)
    return found


def unigram_entropy(manifest_path, split="val"):
    """Nats per token of a split, were every token drawn by its frequency alone; from the manifest
    of its tokens.
    """
    try:
        with open(manifest_path, encoding="utf-8") as file:
            return float(json.load(file)["splits"][split]["unigram_entropy_nats"])
    except OSError as problem:
        raise BadRun(
            f"{manifest_path}: {problem.strerror}; expected the manifest that `mpretrain tokenize`"
            " writes"
        ) from problem
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as problem:
        raise BadRun(f"{manifest_path}: no splits.{split}.unigram_entropy_nats in it") from problem
