"""Runs the cells of a sweep that are not finished, several at a time, and remembers what they came
to.

It may be stopped or killed at any moment and started again: a finished cell is in the ledger, an
unfinished one goes on from its last checkpoint (`--resume auto`), and a run ends with the same bits
whether it was interrupted or not. Several runners may share a ledger and the directory of runs: a
cell's log is locked while the cell runs, also by a program that outlives its runner, so that nobody
starts a second one beside it.
"""

import concurrent.futures
import contextlib
import datetime
import fcntl
import math
import pathlib
import re
import sys
import threading
import time
from dataclasses import dataclass, field

from .. import repository
from ..runs.metrics import BadRun, Run
from .launch import MACHINE, STOPPED, Task
from .ledger import Result
from .machine import machine
from .slurm import LaunchError
from .stop import Stop, Stopped

# In what the program says when it gives up, by its policy.
GIVES_UP = {"rollback": "(train.max_rollbacks)", "skip_step": "(train.max_skipped_steps)"}
VERSION = "sweep: version "  # begins the line of a log that says what the run was started with
OPEN = ("waiting", "elsewhere", "running")  # states in which a cell has not ended


@dataclass(frozen=True)
class Place:
    """Where and with what cells are run."""

    program: str
    tokens: pathlib.Path  # directory that `mpretrain tokenize` wrote
    work: pathlib.Path  # directories of runs
    threads: int = 1  # of a cell
    jobs: int = 1  # cells at a time
    retries: int = 0  # how often a cell that failed is started again

    def directory(self, cell):
        return pathlib.Path(self.work) / cell.name(self.tokens)

    def log(self, cell):
        return pathlib.Path(self.work) / f"{cell.name(self.tokens)}.log"


@dataclass
class Status:
    """Of one cell, while it is run."""

    metrics: pathlib.Path  # where its progress can be read
    # waiting | elsewhere (another process runs it) | running | finished | diverged | failed |
    state: str = "waiting"
    # queued (left in a queue) | stopped (can go on; with an error where nobody asked the runner)
    error: str = ""
    started: float = math.nan  # by time.monotonic()
    seconds: float = 0.0  # in this session
    resumed_at: int = 0  # step that it began at in this session
    result: Result = None
    problem: BaseException = field(default=None, repr=False)  # what a bug in a thread raised


def arguments(cell, place):
    """The program's, with which the cell is started and, the same ones, continued."""
    tokens = pathlib.Path(place.tokens).resolve()
    settings = {
        "eval.every_steps": 0,
        "checkpoint.keep_last": 1,
        "device.threads": place.threads,
        "device.bf16_dot": "fma",  # the same bits on every processor
        **dict(cell.changes),
        "name": cell.name(place.tokens),
        "output_dir": str(pathlib.Path(place.work).resolve()),
        "data.train": str(tokens / "train_*.bin"),
        "data.validation": str(tokens / cell.held_out),
        "data.tokenizer": str(tokens / "tokenizer.model"),
    }
    sets = [
        text for key, value in settings.items() for text in ("--set", f"{key}={spelled(value)}")
    ]
    return ["--config", str(repository.CONFIGS / cell.config), "--resume", "auto", *sets]


def spelled(value):
    """As --set takes it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- what a run left behind


def outcome(cell, place, version):
    """The Result of a cell's directory, None if it is not finished."""
    try:
        run = Run(place.directory(cell))
    except BadRun:
        return None
    step = max(run.steps)
    last = run.steps[step]
    at_end = "val_loss" in last and step >= steps_of(cell)
    diverged = gave_up(cell, last, place.log(cell)) or (
        at_end and not math.isfinite(run.last("val_loss"))
    )
    if not diverged and not at_end:
        return None
    loss = math.inf if diverged else run.last("val_loss")
    told = provenance(place.log(cell))
    return Result(
        fingerprint=cell.fingerprint(place.tokens),
        config=cell.config,
        changes=cell.described_changes(),
        seed=cell.seed,
        val_loss=loss,
        val_loss_family=math.inf if diverged else run.last("val_loss_family"),
        steps=step,
        tokens=last["tokens"],
        tokens_per_second=run.median("tokens_per_second"),
        step_seconds=run.median("step_seconds"),
        state="diverged" if diverged else "finished",
        version=told.get(VERSION, version),
        machine=told.get(MACHINE) or machine(),
        date=datetime.date.today().isoformat(),
        wall_seconds=sum(value for value in run.series("step_seconds")[1] if math.isfinite(value)),
    )


def gave_up(cell, last, log):
    """Whether the run ended with an error at the step of its last record, which was left out."""
    if not last.get("skipped"):
        return False
    key = "train.spike_policy" if "spike" in last else "train.nonfinite_policy"
    policy = cell.value(key, "off" if "spike" in last else "stop")
    return policy == "stop" or (policy in GIVES_UP and last_start_says(log, GIVES_UP[policy]))


def last_start_says(log, words):
    found = False
    with contextlib.suppress(OSError), open(log, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            found = words in line or (found and not line.startswith(VERSION))
    return found


def provenance(log):
    """{VERSION: ..., MACHINE: ...} of the last start that a log tells of: whoever collects a result
    may be another.
    """
    found = {}
    with contextlib.suppress(OSError), open(log, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            found.update(
                {
                    prefix: line.removeprefix(prefix).strip()
                    for prefix in (VERSION, MACHINE)
                    if line.startswith(prefix)
                }
            )
    return found


def newest_checkpoint(directory):
    """Its step, 0 if there is none."""
    steps = (
        re.fullmatch(r"step_(\d{8,})", path.name)
        for path in (directory / "checkpoints").glob("step_*")
    )
    return max((int(match.group(1)) for match in steps if match), default=0)


def parameters_of(cell):
    """Parameters of the cell's model, as parameter_count() of src/model/llama_config.h."""
    model = cell.configuration()["model"]
    h, f, depth = model["hidden_size"], model["intermediate_size"], model["num_hidden_layers"]
    heads = model["num_attention_heads"]
    size = model.get("head_dim") or h // heads
    queries, keys = heads * size, (model.get("num_key_value_heads") or heads) * size
    matrices = (1 if model.get("tie_word_embeddings") else 2) * model["vocab_size"] * h
    norms = 2 * h + (2 * size if model.get("qk_norm") else 0)
    return matrices + depth * (h * (2 * queries + 2 * keys + 3 * f) + norms) + h


def steps_of(cell):
    """Length of the cell's run in steps, as the program reckons it."""
    train = cell.configuration()["train"]
    if train.get("steps") is not None:
        return int(train["steps"])
    tokens = (
        train["tokens"]
        if train.get("tokens") is not None
        else train["chinchilla"] * 20 * parameters_of(cell)
    )
    return -(-math.ceil(tokens) // int(cell.value("batch.tokens_per_step", 131072)))


def complaint(log, since, ended):
    """Why a cell failed: what the program said in its last start, from byte `since` of its log, and
    how it ended.
    """
    with open(log, "rb") as file:
        file.seek(since)
        lines = file.read().decode(errors="replace").splitlines()
    said = [
        line.strip()
        for line in lines
        if re.search(r"\w", line) and not line.startswith((VERSION, MACHINE))
    ]
    errors = [
        line for line in said if line.startswith("mpretrain: error:")
    ]  # launchers add a summary of their own
    if not said:
        return f"{ended} without output ({log})"
    return errors[-1] if errors else f"{ended}; last output: {said[-1]}"


# --- the runner


class Runner:
    """Brings cells to their end, by a launcher (launch.py)."""

    def __init__(self, place, ledger, launcher, version, report=None, stop=None, collect=None):
        self.place, self.ledger, self.launcher, self.version = place, ledger, launcher, version
        self.report = (
            report  # called with {cell: Status} when one of them has changed, and every second
        )
        self._collect = collect  # what outcome() does, with more
        self.stop = Stop() if stop is None else stop  # which is false until it is asked for
        self.stop.advice += launcher.stop_advice
        self.statuses, self.futures = {}, {}
        self._key = {}  # fingerprint: the first cell that had it
        self._changed = threading.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(place.jobs)

    def result(self, cell):
        """From the ledger, or from a directory that was finished but not yet entered; None if there
        is none.
        """
        known = self.ledger.get(cell.fingerprint(self.place.tokens))
        if known is None and (known := (self._collect or outcome)(cell, self.place, self.version)):
            self.ledger.add(known)
        return known

    def run(self, cells):
        """True if none of the cells failed or was stopped by itself; all have a result then, unless
        they are left in a queue.

        Several threads may call it, for the same cells too. Raises Stopped if the sweep was asked
        to stop, LaunchError if nothing can be started.
        """
        self.ledger.read()
        todo = list(dict.fromkeys(self._same(cell) for cell in cells if self.result(cell) is None))
        try:
            self._start(todo)
            futures = [self.futures[cell] for cell in todo]
            while concurrent.futures.wait(futures, timeout=1).not_done:
                self._show()
        except BaseException:  # nobody would be left to hear of what the threads still do
            self.stop.request()
            raise
        self._show()
        self._raise(todo)
        return all(self.statuses[cell].state not in ("failed", "stopped") for cell in todo)

    def _same(self, cell):
        """The first cell with the same fingerprint: two spellings of one run are one run."""
        return self._key.setdefault(cell.fingerprint(self.place.tokens), cell)

    def _start(self, cells):
        with self._changed:
            new = [cell for cell in cells if cell not in self.statuses]
            self._announce(new)
            self.statuses.update(
                {cell: Status(self.place.directory(cell) / "metrics.jsonl") for cell in new}
            )
            self.futures.update({cell: self._pool.submit(self._bring_to_end, cell) for cell in new})

    def _announce(self, cells):
        pathlib.Path(self.place.work).mkdir(parents=True, exist_ok=True)
        if cells and not self.stop:
            self.launcher.announce(
                [self._task(cell) for cell in cells], self.place.work, self.place.jobs
            )

    def _task(self, cell):
        return Task(cell.name(self.place.tokens), tuple(arguments(cell, self.place)))

    def _raise(self, cells):
        """What must not vanish in a thread."""
        if self.stop and any(self.statuses[cell].state == "stopped" for cell in cells):
            print(f"stopped. {self.stop.advice}", file=sys.stderr)
            raise Stopped(128 + self.stop.signal)
        for cell in cells:
            self.futures[cell].result()
            if self.statuses[cell].problem:
                raise self.statuses[cell].problem

    def _bring_to_end(self, cell):
        status = self.statuses[cell]
        try:
            for attempt in range(1 + self.place.retries):
                if attempt:
                    self._announce([cell])
                self._attempt(cell, status)
                if status.state != "failed":
                    break
        except (
            OSError,
            LaunchError,
        ) as problem:  # a disk that is full, say: the others may still come to their end
            status.state, status.error = "failed", str(problem)
        except BaseException as problem:
            status.state, status.error, status.problem = "failed", repr(problem), problem
        self._show()

    def _attempt(self, cell, status):
        """One start of the program, if it is still needed when the cell's log is free."""
        log = self.place.log(cell)
        with self._locked(log, status) as file:
            status.result = None if self.stop else self._seen_result(cell)
            if self.stop or status.result:
                status.state = status.result.state if status.result else "stopped"
                return
            status.state, status.started = "running", time.monotonic()
            status.resumed_at = newest_checkpoint(self.place.directory(cell))
            self._show()
            since = file.seek(0, 2)
            file.write(f"{VERSION}{self.version}\n".encode())
            ended = self.launcher.run(self._task(cell), file, self.stop)
            status.seconds += time.monotonic() - status.started
            self._conclude(cell, status, ended)
            if status.state == "failed":
                status.error = complaint(log, since, ended)

    def _seen_result(self, cell):
        """Another runner may have finished the cell."""
        self.ledger.read()
        return self.result(cell)

    def _conclude(self, cell, status, ended):
        end = time.monotonic() + self.launcher.settle_seconds
        status.result = self.result(cell)
        while (
            ended not in (None, STOPPED)
            and not status.result
            and time.monotonic() < end
            and not self.stop
        ):
            time.sleep(1)
            status.result = self.result(cell)
        if status.result:
            status.state = status.result.state
        elif self.stop:
            status.state = "stopped"
        elif ended == STOPPED:  # by somebody else
            status.state, status.error = "stopped", ended
        else:
            status.state = "failed" if ended else "queued"

    @contextlib.contextmanager
    def _locked(self, log, status):
        """The log, open at its end and locked. Its program inherits the lock together with its
        output.
        """
        with open(log, "ab", buffering=0) as file:
            while not self.stop:  # whoever is asked to stop starts nothing
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    status.state = "elsewhere"
                    time.sleep(0.2)
            yield file

    def _show(self):
        with self._changed:
            if self.report:
                self.report(self.statuses)
