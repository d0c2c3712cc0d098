"""Measures how cost grows: time and memory of the program against the size of the model, the step,
the corpus and the machine.

    scripts/bench.py growth                # docs/benchmarks/growth.md with figures; resumable
    scripts/bench.py growth --only vocab   # one axis
    scripts/bench.py growth --quick        # a few small points, to check that everything runs

Runs the program itself, with configurations and synthetic data in a temporary directory, and takes
step times from its metrics.jsonl. Every point of every round is written to growth.json beside the
page as soon as it is measured. Each axis is drawn on logarithmic scales beside the expected value:
the operations of a step by the formula of the step lines, the figure of `mpretrain plan`, or a
power law.
"""

import argparse
import json
import math
import os
import pathlib
import random
import statistics
import sys
import tempfile
import typing

from ..files import write_whole
from ..repository import ROOT
from ..runs.metrics import Run
from . import child, machine, page
from .disturbance import least_disturbed
from .shapes import Shape, configuration, planned_bytes, write_configuration, write_tokens

PAGE = ROOT / "docs" / "benchmarks" / "growth.md"
BASE = Shape(128, 4, 2, 344, 4096, 8, 256)
FIRST = 2  # steps at the start that do not count
STEPS = 7
ATTEMPTS = 4  # of a point while others use the processors
MIB = 2**20
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
LABELS = {"seconds": "seconds", "peak MiB": "peak memory, MiB", "resume seconds": "resume, seconds"}


class Axis(typing.NamedTuple):
    name: str
    title: str
    unit: str  # of x
    points: tuple
    quick: tuple
    measure: typing.Callable  # of (Place, point): {metric: value}
    expected: dict  # {metric: function of a point, in any unit}; "plan" draws what plan says
    x: typing.Callable = float  # of a point


# --- running --------------------------------------------------------------------------------------


class Place(typing.NamedTuple):
    """Where one measurement happens, and with which program."""

    program: pathlib.Path
    scratch: pathlib.Path

    def config(self, shape, tokens, steps=STEPS, **sections):
        config = configuration(shape, "run", tokens, self.scratch / "runs", steps, **sections)
        return write_configuration(self.scratch / "run.json", config)

    def tokens(self, shape, steps=STEPS):
        return write_tokens(self.scratch / "train.bin", 2 * steps * shape.tokens + 1, shape.vocab)

    def run(self, *arguments, launcher=()):
        return child.run([*launcher, self.program, *arguments], ENVIRONMENT)

    def train(self, config, launcher=()):
        return self.run("train", "--config", config, launcher=launcher)

    def step_seconds(self):
        return Run(self.scratch / "runs" / "run").series("step_seconds")[1]


def train(place, shape, launcher=(), **sections):
    """A step's time is the median; threads and ranks come with sections and launcher."""
    config = place.config(shape, place.tokens(shape), **sections)
    plan = json.loads(place.run("plan", "--config", config, "--json").output)
    finished = place.train(config, launcher)
    return {
        "seconds": statistics.median(place.step_seconds()[FIRST:]),
        "peak MiB": finished.peak_bytes / MIB,
        "plan MiB": planned_bytes(plan) / MIB,
    }


def on_ranks(place, ranks):
    launcher = ["mpirun", "-np", str(ranks), "--bind-to", "none"] if ranks > 1 else []
    measured = train(place, BASE, launcher, device={"threads": 1})
    del measured["plan MiB"]  # of one rank
    return measured


def with_shards(place, count):
    """As many tokens in ever more files; the model is small enough for the loader to show."""
    shape = Shape(64, 1, 1, 64, 256, 8, 128)
    for number in range(count):
        write_tokens(
            place.scratch / "shards" / f"train_{number:06}.bin",
            max((1 << 20) // count, shape.length + 1),
            shape.vocab,
        )
    finished = place.train(place.config(shape, place.scratch / "shards" / "train_*.bin", 60))
    seconds = place.step_seconds()
    return {
        "seconds": statistics.median(seconds[FIRST:]),
        "start seconds": finished.seconds - sum(seconds),
        "peak MiB": finished.peak_bytes / MIB,
    }


def starting(place, hidden):
    """What a run of one step takes besides the step, begun anew and resumed; both save the model
    once.
    """
    shape = of_hidden(hidden)._replace(batch=1, length=64)
    tokens, found = place.tokens(shape, 4), {}
    for steps, metric, more in (
        (1, "start seconds", ()),
        (2, "resume seconds", ("--resume", "latest")),
    ):
        finished = place.run("train", "--config", place.config(shape, tokens, steps), *more)
        found[metric] = finished.seconds - place.step_seconds()[-1]
    return {**found, "peak MiB": finished.peak_bytes / MIB}


def write_text(path, mebibytes):
    """Words of a made-up vocabulary, the frequent ones far more often, in lines."""
    draw = random.Random(1)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 9))) for _ in range(5000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    block = "".join(
        " ".join(draw.choices(words, weights, k=20)) + ".\n" for _ in range(10000)
    ).encode()
    with open(path, "wb") as file:
        while file.tell() < mebibytes * MIB:
            file.write(block[: mebibytes * MIB - file.tell()])


def tokenizing(place, mebibytes):
    text, tokenizer = place.scratch / "text.txt", place.scratch / "tokenizer.model"
    write_text(text, 1)
    place.run("tokenizer", "--input", text, "--vocab-size", "1000", "--output", tokenizer)
    write_text(text, mebibytes)
    finished = place.run(
        "tokenize", "--input", text, "--tokenizer", tokenizer, "--output", place.scratch / "tokens"
    )
    return {"seconds": finished.seconds, "peak MiB": finished.peak_bytes / MIB}


# --- axes -----------------------------------------------------------------------------------------


def of_hidden(hidden):
    return BASE._replace(hidden=hidden, heads=hidden // 64, intermediate=hidden * 43 // 16)


def of_length(length):
    """The tokens of a step stay."""
    return BASE._replace(length=length, batch=BASE.tokens // length)


def parameters(shape):
    layer = 4 * shape.hidden**2 + 3 * shape.hidden * shape.intermediate + 2 * shape.hidden
    return 2 * shape.vocab * shape.hidden + shape.layers * layer + shape.hidden


def operations(shape_of):
    """Those of a step with the model of a point."""
    return lambda point: shape_of(point).tokens * shape_of(point).flops_per_token


def power(exponent):
    return lambda point: float(point) ** exponent


def processors(limit):
    return tuple(2**k for k in range(limit.bit_length()) if 2**k <= limit)


def training_axis(name, title, unit, shape_of, points, quick, **more):
    return Axis(
        name,
        title,
        unit,
        points,
        quick,
        lambda place, point: train(place, shape_of(point)),
        {"seconds": operations(shape_of), "peak MiB": "plan"},
        **more,
    )


CORES = len(os.sched_getaffinity(0))
AXES = [
    training_axis(
        "parameters",
        "Step against the size of the model",
        "parameters",
        of_hidden,
        (64, 128, 256, 512),
        (64, 128),
        x=lambda hidden: parameters(of_hidden(hidden)),
    ),
    training_axis(
        "length",
        "Step of 2048 tokens against the length of a row",
        "tokens of a row",
        of_length,
        (64, 128, 256, 512, 1024, 2048),
        (128, 512),
    ),
    training_axis(
        "vocab",
        "Step against the vocabulary",
        "pieces",
        lambda v: BASE._replace(vocab=v),
        (1024, 4096, 16384, 65536),
        (1024, 4096),
    ),
    training_axis(
        "batch",
        "Step against its rows",
        "rows of 256 tokens",
        lambda b: BASE._replace(batch=b),
        (1, 2, 4, 8, 16, 32),
        (1, 4),
    ),
    Axis(
        "threads",
        "Step against threads",
        "threads",
        processors(CORES),
        processors(min(CORES, 2)),
        lambda place, n: train(place, BASE, device={"threads": n}),
        {"seconds": power(-1), "peak MiB": "plan"},
    ),
    Axis(
        "ranks",
        "Step against ranks of one thread, the same rows in all",
        "ranks",
        processors(CORES),
        processors(min(CORES, 2)),
        on_ranks,
        {"seconds": power(-1)},
    ),
    Axis(
        "corpus",
        "`mpretrain tokenize` against the text",
        "MiB of text",
        (1, 4, 16, 64),
        (1, 2),
        tokenizing,
        {"seconds": power(1), "peak MiB": power(0)},
    ),
    Axis(
        "shards",
        "A million tokens in ever more shards: step and start",
        "shards",
        (1, 10, 100, 1000),
        (1, 10),
        with_shards,
        {"seconds": power(0), "start seconds": power(1)},
    ),
    Axis(
        "start",
        "Start and resume against the size of the model, a save included",
        "parameters",
        (64, 128, 256, 512),
        (64, 128),
        starting,
        {
            "start seconds": lambda h: parameters(of_hidden(h)),
            "resume seconds": lambda h: parameters(of_hidden(h)),
        },
        x=lambda hidden: parameters(of_hidden(hidden)),
    ),
]
BY_NAME = {axis.name: axis for axis in AXES}


# --- results --------------------------------------------------------------------------------------


class Ledger:
    """What was measured, by axis and point, one entry a round; written after each."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.content = (
            json.loads(self.path.read_text(encoding="utf-8"))
            if self.path.exists()
            else {"axes": {}}
        )

    def rounds(self, axis, point):
        return self.content["axes"].get(axis, {}).get(str(point), [])

    def measured(self, axis, point, number, measure):
        """Measures round `number` unless it is there."""
        if number < len(self.rounds(axis, point)):
            return
        found = {**measure(), **machine.moment(), "commit": machine.commit()}
        self.content["axes"].setdefault(axis, {}).setdefault(str(point), []).append(found)
        self.save()

    def save(self):
        write_whole(self.path, json.dumps(self.content, indent=1) + "\n")

    def values(self, axis, point, metric):
        return [r[metric] for r in self.rounds(axis, point) if metric in r]

    def points(self, axis):
        """Those of the axis that were measured, ascending."""
        return sorted(int(point) for point in self.content["axes"].get(axis, {}))


def slope(xs, ys):
    """Of a straight line through the logarithms: y grows as x to this power. NaN where x does not
    vary.
    """
    logs = [(math.log(x), math.log(y)) for x, y in zip(xs, ys) if x > 0 and y > 0]
    if len({x for x, _ in logs}) < 2:
        return math.nan
    mean_x, mean_y = (statistics.fmean(column) for column in zip(*logs))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum(
        (x - mean_x) ** 2 for x, _ in logs
    )


def expected_points(axis, metric, points, ledger=None):
    """[(x, y)]; y in any unit but for plans, which are in that of the metric."""
    rule = axis.expected.get(metric)
    if rule == "plan":
        return [
            (axis.x(p), statistics.median(ledger.values(axis.name, p, "plan MiB"))) for p in points
        ]
    return [(axis.x(p), rule(p)) for p in points] if rule else []


def series(axis, metric, ledger):
    """([point...], [x...], [median...])"""
    points = [p for p in ledger.points(axis.name) if ledger.values(axis.name, p, metric)]
    return (
        points,
        [axis.x(p) for p in points],
        [statistics.median(ledger.values(axis.name, p, metric)) for p in points],
    )


def metrics_of(axis, ledger):
    found = dict.fromkeys(
        key
        for p in ledger.points(axis.name)
        for r in ledger.rounds(axis.name, p)
        for key, value in r.items()
        if isinstance(value, float) and key not in ("load", "others", "plan MiB")
    )
    return list(found)


def slope_cells(axis, metric, ledger):
    """Of all points, of the last two, and expected of each."""
    points, xs, ys = series(axis, metric, ledger)
    wanted = expected_points(axis, metric, points, ledger)
    numbers = []
    for part in (slice(None), slice(-2, None)):
        numbers += [slope(xs[part], ys[part]), slope(*zip(*wanted[part])) if wanted else math.nan]
    return ["–" if math.isnan(number) else f"{number:.2f}" for number in numbers]


# --- page -----------------------------------------------------------------------------------------


def draw(axis, ledger, directory):
    from ..plots.pyplot import plt

    metrics = metrics_of(axis, ledger)
    figure, places = plt.subplots(1, len(metrics), figsize=(4.2 * len(metrics), 3.4), squeeze=False)
    for place, metric in zip(places[0], metrics):
        points, xs, ys = series(axis, metric, ledger)
        place.loglog(xs, ys, "o-", label="measured")
        wanted = expected_points(axis, metric, points, ledger)
        if wanted:
            scale = (
                1 if axis.expected[metric] == "plan" else ys[-1] / wanted[-1][1]
            )  # drawn through the last point
            place.loglog(
                xs,
                [scale * y for _, y in wanted],
                "--",
                color="gray",
                label="plan" if scale == 1 else "expected slope",
            )
        place.set_xlabel(axis.unit)
        place.set_ylabel(LABELS.get(metric, metric))
        place.legend()
    figure.suptitle(axis.title.replace("`", ""))
    figure.tight_layout()
    directory.mkdir(parents=True, exist_ok=True)
    figure.savefig(directory / f"{axis.name}.svg", metadata={"Date": None})
    plt.close(figure)


def axis_lines(axis, ledger, figures):
    metrics = metrics_of(axis, ledger)
    rows = [
        [
            f"{axis.x(p):,.0f}",
            *(page.spread_cell(ledger.values(axis.name, p, m)) for m in metrics),
            page.spread_cell(ledger.values(axis.name, p, "plan MiB")),
        ]
        for p in ledger.points(axis.name)
    ]
    slopes = [[metric, *slope_cells(axis, metric, ledger)] for metric in metrics]
    of = [r for p in ledger.points(axis.name) for r in ledger.rounds(axis.name, p)]
    commits = ", ".join(dict.fromkeys(r["commit"] for r in of))
    return [
        f"## {axis.title}",
        "",
        *page.table([axis.unit, *metrics, "`plan` MiB"], rows),
        "",
        *page.table(
            ["grows as x to the power of", "all points", "expected", "the last two", "expected"],
            slopes,
        ),
        "",
        (
            f"{of[0]['date']} to {of[-1]['date']}; disturbed:"
            f" {page.disturbance(r.get('others', math.nan) for r in of)}; commit {commits}."
        ),
        "",
        f"![{axis.title}]({figures}/{axis.name}.svg)",
        "",
    ]


def write_page(args, ledger, failures):
    figures = args.page.with_suffix("")
    lines = [
        "# How cost grows",
        "",
        (
            "Medians of the rounds, with their range. What is expected of a step's time are its"
            " operations,"
        ),
        (
            "6 N + 6 L C T for a token; of memory, what `mpretrain plan` says. The rest of a step"
            " (optimizer, passes,"
        ),
        "starting threads) makes small models grow more slowly.",
        "",
        *(f"* {key}: {value}" for key, value in ledger.content.get("machine", {}).items()),
        "",
    ]
    for axis in AXES:
        if ledger.points(axis.name):
            draw(axis, ledger, figures)
            lines += axis_lines(axis, ledger, figures.name)
        if axis.name in failures or not ledger.points(axis.name):
            lines += [
                f"{axis.name}: missing: {page.cell(failures.get(axis.name, 'not measured'))}",
                "",
            ]
    args.page.parent.mkdir(parents=True, exist_ok=True)
    args.page.write_text("\n".join(lines).rstrip("\n") + "\n", encoding="utf-8")


def undisturbed(axis, point, args):
    """What the point's least disturbed run gave, each in a directory of its own."""

    def once():
        with tempfile.TemporaryDirectory() as scratch:
            return axis.measure(Place(args.program.resolve(), pathlib.Path(scratch)), point)

    found, others = least_disturbed(once, 1 if args.quick else ATTEMPTS)
    return {**found, "others": others}


def measure_axis(axis, number, args, ledger):
    for point in axis.quick if args.quick else axis.points:
        ledger.measured(axis.name, point, number, lambda: undisturbed(axis, point, args))
        print(
            f"round {number + 1} of {args.rounds}: {axis.name} {point}", file=sys.stderr, flush=True
        )


def arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--program", type=pathlib.Path, default=ROOT / "build" / "cpu" / "mpretrain"
    )
    parser.add_argument(
        "--page",
        type=pathlib.Path,
        help=f"default: {PAGE.relative_to(ROOT)}; with --quick build/growth_quick/growth.md",
    )
    parser.add_argument(
        "--only", nargs="+", choices=BY_NAME, metavar="AXIS", help="of " + ", ".join(BY_NAME)
    )
    parser.add_argument("--rounds", type=int, help="default: 3, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="a few small points")
    parser.add_argument("--again", action="store_true", help="discard earlier measurements")
    parser.add_argument("--no-measure", action="store_true", help="only rewrite the page")
    args = parser.parse_args(argv)
    args.page = args.page or (ROOT / "build" / "growth_quick" / "growth.md" if args.quick else PAGE)
    args.rounds = args.rounds or (1 if args.quick else 3)
    return args


def main(argv=None):
    args = arguments(argv)
    ledger = Ledger(args.page.with_suffix(".json"))
    axes = [BY_NAME[name] for name in args.only or BY_NAME]
    if args.again:
        for axis in axes:
            ledger.content["axes"].pop(axis.name, None)
    failures = {}
    if not args.no_measure:
        with tempfile.TemporaryDirectory() as scratch:
            ledger.content["machine"] = machine.describe(args.program.resolve().parent, scratch)
        for number in range(
            args.rounds
        ):  # a round goes through all axes, so that a bad hour hits all alike
            for axis in axes:
                try:
                    measure_axis(axis, number, args, ledger)
                except child.Failed as problem:
                    failures[axis.name] = str(problem)
                    print(f"growth.py: {axis.name}: {problem}", file=sys.stderr)
    write_page(args, ledger, failures)
    print(f"written: {args.page}", file=sys.stderr)
    return 1 if failures else 0
