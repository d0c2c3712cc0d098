"""Results of finished cells in one CSV. It outlives the runs' directories and can be carried
between machines.

A row is written when a cell is finished, and the file is replaced as a whole: it is never torn.
Several runners may share a file; each reads it again before it writes, under a lock.
"""

import contextlib
import csv
import dataclasses
import fcntl
import math
import os
import pathlib
import threading
from dataclasses import asdict, dataclass, fields

from .configuration import BadConfig

ROUNDED = (
    "tokens_per_second",
    "step_seconds",
    "wall_seconds",
)  # measured: digits beyond the sixth say nothing
STATES = ("finished", "diverged")


@dataclass
class Result:
    """What a finished cell came to. A diverged one has the loss inf: that is a result, too."""

    fingerprint: str
    config: str
    changes: str
    seed: int
    val_loss: float
    val_loss_family: float
    steps: int
    tokens: int
    tokens_per_second: float  # median; a cell that ran beside others is slower for it
    step_seconds: float
    state: str  # finished | diverged
    version: str  # of the program
    machine: str
    date: str
    wall_seconds: float = math.nan

    @classmethod
    def parse(cls, record):
        """From a row of the file; ValueError tells what is wrong with it."""
        if None in record or None in record.values():
            raise ValueError(f"expected {len(fields(cls))} values")
        result = cls(
            **{field.name: _value(field, record.get(field.name, "")) for field in fields(cls)}
        )
        if not result.fingerprint:
            raise ValueError("fingerprint: nothing")
        if result.state not in STATES:
            raise ValueError(f"state: {result.state!r}, expected {' or '.join(STATES)}")
        return result

    @property
    def key(self):
        """What a ledger holds one row of."""
        return self.fingerprint

    @property
    def perplexity(self):
        return math.exp(self.val_loss) if self.val_loss < 700 else math.inf


def _value(field, text):
    if text == "" and field.type is float:
        return math.nan
    try:
        return field.type(text)
    except ValueError as problem:
        raise ValueError(
            f"{field.name}: {text!r} is not a {'whole ' if field.type is int else ''}number"
        ) from problem


class Ledger:
    """{fingerprint: Result}, kept in a file; or {key: row} of another kind of row."""

    def __init__(self, path, kind=Result):
        self.path, self.kind = pathlib.Path(path), kind
        self.results = {}
        self._lock = threading.RLock()
        self.read()

    def read(self):
        """Takes up what the file has, also of others."""
        with (
            self._lock,
            contextlib.suppress(FileNotFoundError),
            open(self.path, newline="", encoding="utf-8") as file,
        ):
            self.results.update(self._parsed(file))

    def _parsed(self, file):
        lines = csv.DictReader(file)
        self._check_header(lines.fieldnames or [])
        try:
            results = [self.kind.parse(record) for record in lines]
        except (ValueError, csv.Error) as problem:
            raise BadConfig(
                f"{self.path}:{lines.line_num}: {problem}; correct or delete the line"
            ) from problem
        return {result.key: result for result in results}

    def _check_header(self, names):
        known = {field.name: field.default is dataclasses.MISSING for field in fields(self.kind)}
        missing = [name for name, needed in known.items() if needed and name not in names]
        strange = [
            name for name in names if name not in known
        ]  # of a later version, say: they would be lost
        if missing or strange:
            what = (
                f"no column {', '.join(missing)}"
                if missing
                else f"unknown column {', '.join(strange)}"
            )
            raise BadConfig(f"{self.path}:1: {what}; expected {','.join(known)}")

    def __getitem__(self, fingerprint):
        return self.results[fingerprint]

    def get(self, fingerprint):
        return self.results.get(fingerprint)

    def add(self, result):
        """Remembers a result and writes the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, open(f"{self.path}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.read()
            self.results[result.key] = result
            self._write()

    def _write(self):
        temporary = self.path.with_name(
            f"{self.path.name}.tmp"
        )  # the lock's holder alone writes it
        with open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(
                file, [field.name for field in fields(self.kind)], lineterminator="\n"
            )
            writer.writeheader()
            rows = sorted(
                self.results.values(), key=lambda r: (r.config, r.changes, r.seed, r.fingerprint)
            )
            writer.writerows(
                {
                    key: f"{value:.6g}" if key in ROUNDED else value
                    for key, value in asdict(row).items()
                }
                for row in rows
            )
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)
