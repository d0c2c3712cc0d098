"""The paper's runtime tables: seconds an update of every optimizer, and its overhead over AdamW of
the same regime.

    scripts/reproduce.py runtime_table --scale pico --tokens data/tokens --output docs/results/pico

Short runs of the program itself, one at a time on all threads, in rounds through all rows. A
round's overhead is of two runs of the same round, so what changes slowly on a machine cancels; the
table has medians over rounds, and what they spread. A round's seconds are the median of its steps
after the first ones. A run beside which other processes, or other guests of a virtual machine's
host, used the processors is measured again, up to --attempts times, and the least disturbed one
counts; what disturbance is left is told of. What is measured is kept in <output>/runtime_rounds.csv
and not measured again.
"""

import csv
import hashlib
import os
import pathlib
import shutil
import statistics
import sys
from dataclasses import asdict, dataclass, fields

from ..bench.disturbance import Clock, is_disturbed
from ..markdown import table
from ..runs.metrics import BadRun, Run
from ..sweeps import configuration
from ..sweeps.cell import Cell
from ..sweeps.launch import Task, launcher_of
from ..sweeps.plan import device
from ..sweeps.runner import Place, complaint, steps_of
from ..sweeps.runner import arguments as arguments_of
from ..sweeps.slurm import executable
from ..sweeps.stop import Stopped
from . import paper, style
from .artefact import Artefact
from .rows import MAIN, Row, paper_size

# Side by side what is compared: the rows of a regime follow one another.
ROWS = tuple(
    sorted(
        (
            *(row for row in MAIN if row.regime != "FP32/TF32"),
            Row("BF16/BF16", "M+Adam, Apollo-E", "bf16_apollo_e"),
        ),
        key=lambda row: [other.regime for other in MAIN].index(row.regime),
    )
)


def add_arguments(parser):
    parser.add_argument("--rounds", type=int, help="number of rounds; default: 5, quick 2")
    parser.add_argument("--steps", type=int, help="steps per run; default: 60, quick 20")
    parser.add_argument("--skip", type=int, default=5, help="warm-up steps of a run, not measured")
    parser.add_argument(
        "--attempts",
        type=int,
        help="attempts per row and round while runs are disturbed; default: 6, quick 1",
    )
    parser.set_defaults(threads=os.cpu_count())


@dataclass(frozen=True)
class Measured:
    """A run of one round. The fields up to `round` say what was measured."""

    cell: str  # fingerprint of configuration, length and tokens
    program: str  # hash of the file
    device: str
    launcher: str
    threads: int
    skip: int
    round: int
    config: str
    seconds: float  # an update: the median of the run's steps
    others: float  # cores that others used meanwhile

    @property
    def key(self):
        return tuple(getattr(self, field.name) for field in fields(self)[:7])

    @property
    def disturbed(self):
        return is_disturbed(self.others)


class Rounds:
    """{key: the least disturbed Measured}, kept in a file that grows by a line for each run."""

    def __init__(self, path):
        self.path, self.found = path, {}
        types = {field.name: field.type for field in fields(Measured)}
        if path.exists():
            with open(path, newline="", encoding="utf-8") as file:
                for record in csv.DictReader(file):
                    self._remember(
                        Measured(**{name: kind(record[name]) for name, kind in types.items()})
                    )

    def _remember(self, measured):
        former = self.found.get(measured.key)
        if former is None or not measured.others >= former.others:
            self.found[measured.key] = measured

    @property
    def place(self):
        """What all were measured with, by name: program, device, launcher, threads and skip. One of
        each, or nothing is drawn.
        """
        places = {measured.key[1:6] for measured in self.found.values()}
        if len(places) != 1:
            raise configuration.BadConfig(
                f"{self.path}: found rounds of {len(places)} programs, devices or settings;"
                " expected those of one, to draw them again"
            )
        return dict(zip((field.name for field in fields(Measured)[1:6]), places.pop()))

    def add(self, measured):
        self._remember(measured)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = not self.path.exists()
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(
                file, [field.name for field in fields(Measured)], lineterminator="\n"
            )
            if new:
                writer.writeheader()
            writer.writerow(asdict(measured))


class Runtime:
    """Measures what is missing and tells what is there."""

    def __init__(self, artefact):
        self.artefact, self.args = artefact, artefact.args
        quick = self.args.quick
        self.number = self.args.rounds or (2 if quick else 5)
        self.steps = self.args.steps or (20 if quick else 60)
        self.attempts = self.args.attempts or (1 if quick else 6)
        if self.steps <= self.args.skip:
            sys.exit(
                f"runtime_table: error: --steps {self.steps}: expected more than"
                f" --skip {self.args.skip}"
            )
        self.rounds = Rounds(artefact.output / "runtime_rounds.csv")
        if artefact.page:
            self._take_from_file()
        else:
            self._take_from_here()

    def _take_from_here(self):
        args = self.args
        self.launcher = launcher_of(args.launcher, args.program, args.threads)
        self.place = Place(args.program, args.tokens, args.work / "runtime", args.threads)
        self.program, self.version = hash_of(args.program), self.artefact.version()
        self.device = device(args.program, ROWS[0].file(self.artefact.scale))

    def _take_from_file(self):
        """With --redraw: the cells' fingerprints, too, are those of the file."""
        place = self.rounds.place
        self.program, self.device, self.version = (
            place["program"],
            place["device"],
            self.artefact.page.version,
        )
        self.args.launcher, self.args.threads, self.args.skip = (
            place["launcher"],
            place["threads"],
            place["skip"],
        )
        self.cells = {measured.config: measured.cell for measured in self.rounds.found.values()}

    def cell(self, row):
        """As the config has it: rates do not change what a step takes. The end's evaluation is one
        row of text.
        """
        return Cell.of(
            row.file(self.artefact.scale),
            {"train.steps": self.steps, "checkpoint.every_steps": 0, "eval.tokens": 1},
        )

    def key(self, row, number):
        return (
            self.fingerprint(row),
            self.program,
            self.device,
            self.args.launcher,
            self.args.threads,
            self.args.skip,
            number,
        )

    def fingerprint(self, row):
        if self.artefact.page:
            return self.cells.get(row.file(self.artefact.scale), "")
        return self.cell(row).fingerprint(self.args.tokens)

    def found(self, row):
        """{round: Measured}"""
        keys = {number: self.key(row, number) for number in range(self.number)}
        return {
            number: self.rounds.found[key]
            for number, key in keys.items()
            if key in self.rounds.found
        }

    def measure(self):
        """Every other round goes through the rows backward, so that no row always follows the same
        one.
        """
        for number in range(self.number):
            for row in ROWS[::-1] if number % 2 else ROWS:
                if self.key(row, number) not in self.rounds.found:
                    self.measure_row(row, number)

    def measure_row(self, row, number):
        """Until a run is not disturbed, or --attempts are used up, or one fails."""
        for _ in range(self.attempts):
            measured = self.measure_once(row, number)
            if measured is None or not measured.disturbed:
                return

    def measure_once(self, row, number):
        """What a run took, None if it failed."""
        cell = self.cell(row)
        directory, log = self.place.directory(cell), self.place.log(cell)
        self.place.work.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(directory, ignore_errors=True)
        with open(log, "wb", buffering=0) as output, Clock() as clock:
            ended = self.launcher.run(self.announced(cell), output, self.artefact.stop)
        if self.artefact.stop:
            raise Stopped(128 + self.artefact.stop.signal)
        seconds = seconds_of(directory, self.args.skip)
        if len(seconds) != self.steps - self.args.skip:
            print(f"runtime_table: error: {row.label}: {complaint(log, 0, ended)}", file=sys.stderr)
            self.artefact.failed = True
            return None
        shutil.rmtree(directory)
        measured = Measured(
            *self.key(row, number),
            row.file(self.artefact.scale),
            statistics.median(seconds),
            round(clock.others, 3),
        )
        self.rounds.add(measured)
        busy = f", while others used {measured.others:.2f} cores" if measured.disturbed else ""
        print(
            f"runtime_table: round {number + 1} of {self.number}, {row.label}:"
            f" {statistics.median(seconds):.4g} s{busy}",
            flush=True,
        )
        return measured

    def announced(self, cell):
        """The task that the launcher is told to run next."""
        task = Task(cell.name(self.args.tokens), tuple(arguments_of(cell, self.place)))
        self.launcher.announce([task], self.place.work, 1)
        return task

    def overheads(self, row):
        """Over AdamW in per cent, of the rounds in which both were measured."""
        base, found = self.found(baseline(row)), self.found(row)
        return [
            100 * (found[number].seconds / base[number].seconds - 1)
            for number in found
            if number in base
        ]

    def steps_of_run(self):
        return steps_of(
            Cell.of(ROWS[0].file(self.artefact.scale), {"train.chinchilla": self.args.budget})
        )


def hash_of(program):
    """What identifies the program: another one takes another time."""
    return hashlib.sha256(pathlib.Path(executable(program)).read_bytes()).hexdigest()[:12]


def seconds_of(directory, skip):
    """Of the steps of a run that count."""
    try:
        return Run(directory).series("step_seconds")[1][skip:]
    except BadRun:
        return []


def baseline(row):
    return next(
        other for other in ROWS if other.regime == row.regime and other.optimizer == "AdamW"
    )


def paper_of(row, size):
    """(seconds an update, overhead in per cent) as printed, None where nothing is."""
    pair = paper.SECONDS_PER_UPDATE.get((size, row.regime))
    if row.optimizer == "AdamW + SR":
        return paper.STOCHASTIC_ROUNDING.get(size, (None, None))
    if pair is None or row.optimizer not in ("AdamW", "M+Adam"):
        return None, None
    return (
        (pair[0], None) if row.optimizer == "AdamW" else (pair[1], paper.OVERHEAD[size, row.regime])
    )


def duration(seconds):
    """As the paper writes it: 5h58m39s."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m{seconds:02}s" if hours else f"{minutes}m{seconds:02}s"


def ranged(values, form):
    """Median, and the range where there are several."""
    if not values:
        return "not run"
    median = format(statistics.median(values), form)
    return f"{median} [{min(values):{form}}, {max(values):{form}}]" if len(values) > 1 else median


def entry(value, form):
    return "" if value is None else format(value, form)


def runtime_table(runtime):
    size = paper_size(runtime.artefact.scale)
    steps, tokens_per_step = (
        runtime.steps_of_run(),
        runtime.cell(ROWS[0]).value("batch.tokens_per_step"),
    )
    header = [
        "weights/compute",
        "optimizer",
        "s/update",
        "tokens/s",
        "overhead, % (median of rounds)",
        f"a run of {steps:,} updates",
        f"paper, {size.upper()}: s/update",
        "overhead, %",
    ]
    lines = []
    for row in ROWS:
        seconds = [measured.seconds for measured in runtime.found(row).values()]
        median = statistics.median(seconds) if seconds else None
        overhead = "" if row == baseline(row) else ranged(runtime.overheads(row), "+.1f")
        printed, printed_overhead = paper_of(row, size)
        lines.append(
            [
                row.regime,
                row.optimizer,
                ranged(seconds, ".4f"),
                entry(median and tokens_per_step / median, ",.0f"),
                overhead,
                duration(steps * median) if median else "",
                entry(printed, ".3f"),
                entry(printed_overhead, "+.2f"),
            ]
        )
    return table(header, lines)


def remarks(runtime):
    counted = [measured for row in ROWS for measured in runtime.found(row).values()]
    disturbed = [measured.others for measured in counted if measured.disturbed]
    lines = [
        f"{runtime.device}; {runtime.args.threads} threads a run, launcher {runtime.args.launcher},"
        f" {runtime.version}. Median and range of {runtime.number} rounds; a round's figure is the"
        f" median of {runtime.steps - runtime.args.skip} updates after {runtime.args.skip} that do"
        " not count. An overhead is the median over rounds of the ratio of two runs of the same"
        " round, so it is not the ratio of the medians beside it and may even have the other sign."
        " Evaluation, checkpoints and the start of the program are not in it; they are in the"
        " paper's figures, which are of H200s."
    ]
    if disturbed:
        lines.append(
            f"\n**The machine was not idle: beside {len(disturbed)} of {len(counted)} runs others"
            f" used up to {max(disturbed):.2f} cores. Remove `{runtime.rounds.path.name}` to"
            " measure again.**"
        )
    return lines


def records(runtime):
    size = paper_size(runtime.artefact.scale)
    for row in ROWS:
        found, overheads = runtime.found(row), runtime.overheads(row)
        seconds = [measured.seconds for measured in found.values()]
        spread = [min(seconds), statistics.median(seconds), max(seconds)] if seconds else [None] * 3
        over = (
            [min(overheads), statistics.median(overheads), max(overheads)]
            if overheads
            else [None] * 3
        )
        others = max((measured.others for measured in found.values()), default=None)
        yield [
            row.regime,
            row.optimizer,
            len(found),
            *(entry(value, ".6f") for value in spread),
            *(entry(value, ".3f") for value in over),
            entry(others, ".3f"),
            *(entry(value, "g") for value in paper_of(row, size)),
        ]


HEADER = [
    "regime",
    "optimizer",
    "rounds",
    "seconds_least",
    "seconds_median",
    "seconds_most",
    "overhead_least",
    "overhead_median",
    "overhead_most",
    "others_cores",
    "paper_seconds",
    "paper_overhead",
]


def draw(runtime):
    """Overheads with their ranges beside the paper's; None if nothing is measured."""
    shown = [row for row in ROWS if row != baseline(row) and runtime.overheads(row)]
    if not shown:
        return None
    size = paper_size(runtime.artefact.scale)
    figure, axes = style.pyplot().subplots(figsize=(6.4, 0.38 * len(shown) + 1.2))
    for place, row in enumerate(shown):
        overheads = runtime.overheads(row)
        look = style.optimizer(row.optimizer.split(",")[0])
        axes.plot(
            overheads, [place] * len(overheads), ".", color=look["color"], alpha=0.6, label="_"
        )
        axes.plot([min(overheads), max(overheads)], [place] * 2, color=look["color"], linewidth=1)
        axes.plot(statistics.median(overheads), place, linestyle="none", markersize=7, **look)
    printed = {
        place: over
        for place, row in enumerate(shown)
        if (over := paper_of(row, size)[1]) is not None
    }
    if printed:  # named above the panel: a mark within it would look like data
        axes.plot(
            list(printed.values()),
            list(printed),
            "k|",
            markersize=14,
            markeredgewidth=2,
            label=f"paper, {size.upper()}, on H200s",
        )
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1))
    axes.set_yticks(range(len(shown)), [row.label for row in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("overhead over AdamW of the same regime (%)")
    axes.set_title("dots: rounds; mark: their median", loc="left")
    return figure


def main(arguments=None):
    artefact = Artefact("runtime_table", __doc__, arguments, add_arguments)
    artefact.check_tokens()
    runtime = Runtime(artefact)
    if not artefact.args.report_only:
        runtime.measure()
    picture = []
    if figure := draw(runtime):
        artefact.write_figure(figure)
        picture = ["![Overhead over AdamW](runtime_table.png)", ""]
    artefact.write_csv(HEADER, records(runtime))
    artefact.write_markdown("Runtime", [*picture, *remarks(runtime), "", *runtime_table(runtime)])
    return 1 if artefact.failed else 0
