"""Training steps of several builds of the program, in turn (A B C A B C ...), as a Markdown table.

  scripts/bench.py programs --program native=build/cpu/mpretrain
                            --program package=build/package/bin/mpretrain
                            [--config nano_bf16 ...] [--rounds 5] [--steps 40]

A run gives the median of its steps' tokens/s, without the first SKIPPED; a figure is the median of
the rounds, with their range. The ratio to the first program is taken round by round. A run beside
which others used the machine is repeated, up to --attempts times, and the least disturbed counts.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile

from .. import markdown
from ..runs.metrics import Run
from . import child, machine
from .competitors import Competitor, run_round
from .disturbance import is_disturbed
from .shapes import write_tokens
from .spread import median_and_range, range_text

HEAD = ("configuration", "program", "tokens/s", "of the first", "disturbed rounds", "rounds")
SKIPPED = 5
VOCABULARY = 512  # that all shipped models have at least


def named_program(text):
    label, equals, path = text.partition("=")
    if not (label and equals and pathlib.Path(path).is_file()):
        raise argparse.ArgumentTypeError(f"'{text}': expected LABEL=PATH of a program")
    return label, str(pathlib.Path(path).resolve())


def run_command(program, config, directory, steps):
    settings = (
        f"train.steps={steps}",
        f'data.train=["{directory}/tokens.bin"]',
        "data.validation=[]",
        'data.tokenizer=""',
        "eval.every_steps=0",
        "checkpoint.every_steps=0",
        f"output_dir={directory}/runs",
        "name=run",
    )
    sets = [word for setting in settings for word in ("--set", setting)]
    return [program, "train", "--config", config, *sets]


def tokens_per_second(program, config, steps):
    """Counters of one run: the median of its steps."""
    with tempfile.TemporaryDirectory() as directory:
        write_tokens(pathlib.Path(directory, "tokens.bin"), 1 << 20, VOCABULARY)
        child.run(run_command(program, config, directory, steps))
        run = Run(pathlib.Path(directory, "runs/run"))
    return {"tokens/s": statistics.median(run.series("tokens_per_second")[1][SKIPPED:])}


def measured_rounds(args):
    """{configuration/label: benchmark} of each round, which goes through all configurations."""
    found = [
        Competitor(
            label, label, lambda config, path=path: tokens_per_second(path, config, args.steps)
        )
        for label, path in args.program
    ]
    for _ in range(args.rounds):
        benchmarks = run_round(found, args.config, args.attempts, lambda text: None)
        for benchmark in benchmarks:
            if "failed" in benchmark["counters"]:
                raise child.Failed(benchmark["counters"]["failed"])
        yield {benchmark["name"]: benchmark for benchmark in benchmarks}


def table_rows(config, labels, rounds):
    """A row a program: the first is what the others are compared with."""
    speeds = [
        {label: each[f"{config}/{label}"]["counters"]["tokens/s"] for label in labels}
        for each in rounds
    ]
    for label in labels:
        values = [each[label] for each in speeds]
        ratios = [each[label] / each[labels[0]] for each in speeds]
        disturbed = sum(is_disturbed(each[f"{config}/{label}"]["others"]) for each in rounds)
        middle, low, high = median_and_range(values)
        raw = " ".join(f"{value:.0f}" for value in values)
        speed = f"{middle:,.0f} ({low:,.0f}–{high:,.0f})"
        yield config, label, speed, range_text(ratios, 3), disturbed, raw


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--program", action="append", required=True, type=named_program, metavar="LABEL=PATH"
    )
    parser.add_argument("--config", action="append", help="[nano_bf16, nano_fp8]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--attempts", type=int, default=1)
    args = parser.parse_args()
    args.config = args.config or ["nano_bf16", "nano_fp8"]
    if args.steps <= SKIPPED or args.rounds < 1:
        parser.error(f"--steps: more than {SKIPPED}; --rounds: at least 1")
    now = machine.moment()
    print(f"* {now['date']}, load {now['load']} before")
    for label, path in args.program:
        said = child.run([path, "--version"]).output.splitlines()
        print(f"* {label}: {'; '.join(' '.join(line.split()) for line in said[:3])}")
    try:
        rounds = list(measured_rounds(args))
    except child.Failed as problem:
        sys.exit(f"bench.py programs: error: {problem}")
    labels = [label for label, _ in args.program]
    rows = [row for config in args.config for row in table_rows(config, labels, rounds)]
    print("\n".join(["", *markdown.table(HEAD, rows)]))
