"""Results of finished cells in one CSV. It outlives the runs' directories and can be carried between machines.

A row is written when a cell is finished, and the file is replaced as a whole: it is never torn. Several runners may share
a file; each reads it again before it writes, under a lock.
"""

import csv
import fcntl
import math
import os
import pathlib
from dataclasses import asdict, dataclass, fields


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

    @staticmethod
    def parse(record):
        def value(field):
            text = record.get(field.name) or ""
            return field.type(text) if text or field.type is str else math.nan

        return Result(**{field.name: value(field) for field in fields(Result)})

    @property
    def perplexity(self):
        return math.exp(self.val_loss) if self.val_loss < 700 else math.inf


class Ledger:
    """{fingerprint: Result}, kept in a file."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.results = {}
        self.read()

    def read(self):
        if self.path.exists():
            with open(self.path, newline="", encoding="utf-8") as file:
                for record in csv.DictReader(file):
                    result = Result.parse(record)
                    self.results[result.fingerprint] = result

    def __getitem__(self, fingerprint):
        return self.results[fingerprint]

    def get(self, fingerprint):
        return self.results.get(fingerprint)

    def add(self, result):
        """Remembers a result and writes the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{self.path}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.read()
            self.results[result.fingerprint] = result
            self._write()

    def _write(self):
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(Result)], lineterminator="\n")
            writer.writeheader()
            rows = sorted(self.results.values(), key=lambda r: (r.config, r.changes, r.seed, r.fingerprint))
            writer.writerows({key: f"{value:.6g}" if key in ("tokens_per_second", "step_seconds", "wall_seconds") else value
                              for key, value in asdict(row).items()} for row in rows)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)
