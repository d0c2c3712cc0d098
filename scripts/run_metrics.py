"""Reads what a run recorded: its metrics.jsonl, whole or torn, resumed or not, and the manifest of its tokens.

A record torn by a crash is passed over; where a step was recorded twice the last record counts; what was recorded
beyond the step that a run resumed from is dropped, for the resumed run did not build on it.
"""

import json
import math
import pathlib
import statistics


class BadRun(Exception):
    """There is nothing to read where a run was expected."""


def number(value):
    """A recorded value as a float; null and text such as "nan" are NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    return float(value)


class Run:
    """The records of one run, by step."""

    def __init__(self, path):
        path = pathlib.Path(path)
        self.path = path / "metrics.jsonl" if path.is_dir() else path
        self.name = self.path.parent.name
        self.steps = {}
        self.torn_lines = 0
        try:
            with open(self.path, encoding="utf-8", errors="replace") as lines:
                for line in filter(str.strip, lines):
                    self._take(line)
        except OSError as problem:
            raise BadRun(f"{self.path}: {problem.strerror}; expected a run directory or its metrics.jsonl") from problem
        if not self.steps:
            raise BadRun(f"{self.path}: no step is recorded in it")

    def _take(self, line):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            self.torn_lines += 1
            return
        step = record.get("step") if isinstance(record, dict) else None
        if not isinstance(step, int):
            return
        if record.get("event") == "resume":
            self.steps = {s: r for s, r in self.steps.items() if s <= step}
        elif "event" not in record:
            self.steps[step] = {**self.steps.get(step, {}), **record}

    def series(self, key):
        """([step...], [value...]) of the steps that recorded the key, in order."""
        found = [(step, number(record[key])) for step, record in sorted(self.steps.items()) if key in record]
        return [step for step, _ in found], [value for _, value in found]

    def last(self, key):
        """The last value recorded under the key, NaN where there is none."""
        values = self.series(key)[1]
        return values[-1] if values else math.nan

    def median(self, key):
        values = [value for value in self.series(key)[1] if math.isfinite(value)]
        return statistics.median(values) if values else math.nan


def unigram_entropy(manifest_path, split="val"):
    """Nats per token of a split, were every token drawn by its frequency alone; from the manifest of its tokens."""
    try:
        with open(manifest_path, encoding="utf-8") as file:
            return float(json.load(file)["splits"][split]["unigram_entropy_nats"])
    except OSError as problem:
        raise BadRun(f"{manifest_path}: {problem.strerror}; expected the manifest that `mpretrain tokenize` writes") from problem
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as problem:
        raise BadRun(f"{manifest_path}: no splits.{split}.unigram_entropy_nats in it") from problem
