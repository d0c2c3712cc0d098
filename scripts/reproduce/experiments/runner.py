"""Runs the cells of a sweep that are not finished, several at a time, and remembers what they came to.

It may be stopped or killed at any moment and started again: a finished cell is in the ledger, an unfinished one goes on
from its last checkpoint (`--resume auto`), and a run ends with the same bits whether it was interrupted or not.
"""

import concurrent.futures
import datetime
import math
import os
import pathlib
import platform
import sys
import threading
import time
from dataclasses import dataclass

from . import configuration
from .ledger import Result

sys.path.insert(0, str(configuration.ROOT / "scripts"))
from run_metrics import BadRun, Run  # noqa: E402


@dataclass(frozen=True)
class Place:
    """Where and with what cells are run."""

    program: str
    tokens: pathlib.Path  # directory that `mpretrain tokenize` wrote
    work: pathlib.Path  # directories of runs
    threads: int = 1  # of a cell
    jobs: int = 1  # cells at a time


@dataclass
class Status:
    """Of one cell, while it is run."""

    state: str = "waiting"  # waiting | running | finished | diverged | failed
    error: str = ""
    seconds: float = 0.0  # in this session


def machine():
    """The model and number of this machine's processors."""
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} threads"
    except OSError:
        pass
    return f"{platform.machine()}, {os.cpu_count()} threads"


def arguments(cell, place):
    """The program's, with which the cell is started and, the same ones, continued."""
    tokens = pathlib.Path(place.tokens).resolve()
    settings = {
        "eval.every_steps": 0, "checkpoint.keep_last": 1, "device.threads": place.threads,
        **dict(cell.changes), "name": cell.name(place.tokens), "output_dir": str(pathlib.Path(place.work).resolve()),
        "data.train": str(tokens / "train_*.bin"), "data.validation": str(tokens / "val_*.bin"),
        "data.tokenizer": str(tokens / "tokenizer.model"),
    }
    sets = [text for key, value in settings.items() for text in ("--set", f"{key}={spelled(value)}")]
    return ["--config", str(configuration.CONFIGS / cell.config), "--resume", "auto", *sets]


def spelled(value):
    """As --set takes it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def outcome(cell, place, version):
    """The Result of a cell's directory, None if it is not finished."""
    try:
        run = Run(pathlib.Path(place.work) / cell.name(place.tokens))
    except BadRun:
        return None
    step = max(run.steps)
    last = run.steps[step]
    diverged = bool(last.get("skipped")) and cell.value("train.nonfinite_policy", "stop") == "stop"
    if not diverged and ("val_loss" not in last or step < steps_of(cell)):
        return None
    loss = math.inf if diverged else run.last("val_loss")
    return Result(
        fingerprint=cell.fingerprint(place.tokens), config=cell.config, changes=cell.described_changes(), seed=cell.seed,
        val_loss=loss, val_loss_family=math.inf if diverged else run.last("val_loss_family"), steps=step,
        tokens=last["tokens"], tokens_per_second=run.median("tokens_per_second"),
        step_seconds=run.median("step_seconds"), state="diverged" if diverged else "finished", version=version,
        machine=machine(), date=datetime.date.today().isoformat(),
        wall_seconds=sum(value for value in run.series("step_seconds")[1] if math.isfinite(value)))


def parameters_of(cell):
    """Parameters of the cell's model: N = 2Vh + L(4h^2 + 3hf) + (2L+1)h, embedding and head untied."""
    model = cell.configuration()["model"]
    h, f, depth = model["hidden_size"], model["intermediate_size"], model["num_hidden_layers"]
    return 2 * model["vocab_size"] * h + depth * (4 * h * h + 3 * h * f) + (2 * depth + 1) * h


def steps_of(cell):
    """Length of the cell's run in steps, as the program reckons it."""
    train = cell.configuration()["train"]
    if train.get("steps") is not None:
        return int(train["steps"])
    tokens = train["tokens"] if train.get("tokens") is not None else train["chinchilla"] * 20 * parameters_of(cell)
    return math.ceil(tokens / cell.value("batch.tokens_per_step", 131072))


def last_lines(path, count=1):
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-count:])


class Runner:
    """Brings cells to their end. `launcher.run(arguments, log)` starts the program and returns its exit status."""

    def __init__(self, place, ledger, launcher, version, report=None):
        self.place, self.ledger, self.launcher, self.version = place, ledger, launcher, version
        self.report = report  # called with the statuses when one of them has changed, and now and then
        self.statuses, self.futures = {}, {}
        self._changed = threading.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(place.jobs)

    def result(self, cell):
        """From the ledger, or from a directory that was finished but not yet entered; None if there is none."""
        known = self.ledger.get(cell.fingerprint(self.place.tokens))
        if known is None and (known := outcome(cell, self.place, self.version)):
            self.ledger.add(known)
        return known

    def run(self, cells):
        """True if all cells have a result now. Several threads may call it, for the same cells too."""
        cells = list(dict.fromkeys(cells))
        todo = [cell for cell in cells if self.result(cell) is None]
        with self._changed:
            new = [cell for cell in todo if cell not in self.statuses]
            self.statuses.update({cell: Status() for cell in new})
            self.futures.update({cell: self._pool.submit(self._bring_to_end, cell) for cell in new})
        self._show()
        concurrent.futures.wait([self.futures[cell] for cell in todo])
        return all(self.statuses[cell].state != "failed" for cell in todo)

    def _bring_to_end(self, cell):
        status = self.statuses[cell]
        status.state, start = "running", time.monotonic()
        self._show()
        work = pathlib.Path(self.place.work)
        work.mkdir(parents=True, exist_ok=True)
        log = work / f"{cell.name(self.place.tokens)}.log"
        code = self.launcher.run(arguments(cell, self.place), log)
        status.seconds = time.monotonic() - start
        result = outcome(cell, self.place, self.version)
        if result:
            self.ledger.add(result)
            status.state = result.state
        else:
            status.state, status.error = "failed", last_lines(log) or f"exit status {code}, nothing in {log}"
        self._show()

    def _show(self):
        with self._changed:
            if self.report:
                self.report(self.statuses)
