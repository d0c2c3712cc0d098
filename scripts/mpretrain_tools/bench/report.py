"""Measures everything on the CPU and writes docs/benchmarks/cpu.md and cpu.json beside it.

    scripts/bench.py report --python2 ~/torch2/bin/python   # hours; resumes where it stopped
    scripts/bench.py report --only step ops   # only these parts, and the page
    scripts/bench.py report --quick           # minutes: checks that everything runs
    scripts/bench.py report --check           # measures what was not measured at this commit,
                                              # compares with bench/ratios.json, exits 1 if worse
    scripts/bench.py report --store           # stores the measured ratios as
                                              # bench/ratios.json; with --only, replaces only those
                                              # of these parts

Each part has a file in the output directory, with its date, load and commit, so that the page can
combine parts measured at different times. A complete part is measured again only with --again, or
with --check if it is of another commit. The
benchmarks must be built: cmake --build --preset cpu. Those not built are listed as missing.
data_bench reads the text and tokenizer named by MPT_BENCH_TEXT and MPT_BENCH_TOKENIZER.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

from ..repository import ROOT
from . import child, machine, page, ratios
from .parts import BY_NAME, Missing, Options, Store, measure_part

PAGE = ROOT / "docs" / "benchmarks" / "cpu.md"
RATIOS = ROOT / "bench" / "ratios.json"


def say(text):
    print(text, file=sys.stderr, flush=True)


def arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--build",
        type=pathlib.Path,
        default=ROOT / "build" / "cpu",
        help="where mpretrain and bench/ were built",
    )
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        help="directory of the parts (default: build/bench_report, with --quick bench_quick)",
    )
    parser.add_argument(
        "--page",
        type=pathlib.Path,
        help=f"default: {PAGE.relative_to(ROOT)}; with --quick, in the output directory",
    )
    parser.add_argument(
        "--only", nargs="+", choices=BY_NAME, metavar="PART", help="any of " + ", ".join(BY_NAME)
    )
    parser.add_argument("--again", action="store_true", help="also repeat complete parts")
    parser.add_argument(
        "--no-measure", action="store_true", help="only write the page from existing parts"
    )
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, help="default: 3")
    parser.add_argument(
        "--attempts",
        type=int,
        help=("attempts per benchmark and round while others are busy; default: 6, with --quick 1"),
    )
    parser.add_argument(
        "--shapes", help="shapes of the peers and profiles; default: ABCDE, with --quick A"
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--python", default="/usr/bin/python3", help="an interpreter with the distribution's torch"
    )
    parser.add_argument("--python2", help="an interpreter with PyTorch 2.x")
    parser.add_argument("--llmc", help="a checkout of llm.c")
    parser.add_argument("--ratios", type=pathlib.Path, default=RATIOS)
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare with the stored ratios instead of writing the page; what was measured at"
        " another commit is measured again. All changes that are not committed count as one:"
        " use --again between them",
    )
    parser.add_argument("--store", action="store_true", help="store the measured ratios")
    args = parser.parse_args(argv)
    args.output = args.output or args.build.parent / (
        "bench_quick" if args.quick else "bench_report"
    )
    args.page = args.page or (args.output / "cpu.md" if args.quick else PAGE)
    args.shapes = args.shapes or ("A" if args.quick else "ABCDE")
    args.rounds = args.rounds or (1 if args.quick else 3)
    args.attempts = args.attempts or (1 if args.quick else 6)
    if min(args.rounds, args.attempts) < 1 or not set(args.shapes) <= set("ABCDE"):
        parser.error(
            f"--rounds {args.rounds} --attempts {args.attempts} --shapes {args.shapes}: expected at"
            " least 1 round and attempt, and shapes of ABCDE"
        )
    return args


def measure(store, args):
    """What could not be measured, and why."""
    options = Options(
        args.build,
        args.rounds,
        args.quick,
        args.shapes,
        args.python,
        args.python2,
        args.llmc,
        args.threads,
        args.attempts,
        of_this_commit=args.check,
    )
    with tempfile.TemporaryDirectory() as scratch:
        described = machine.describe(args.build, scratch)
    missing, commit = {}, machine.commit()
    for name in args.only or BY_NAME:
        try:
            measure_part(store, BY_NAME[name], options, described, commit, say, args.again)
        except (Missing, child.Failed) as problem:
            missing[name] = str(problem)
            say(f"{name}: missing: {problem}")
    return missing


def write_page(args, parts, missing):
    args.page.parent.mkdir(parents=True, exist_ok=True)
    before = args.page.read_text(encoding="utf-8") if args.page.exists() else ""
    args.page.write_text(
        page.placed(before, page.public(page.report(parts, missing, args.quick))), encoding="utf-8"
    )
    content = {"parts": parts, "missing": missing, "ratios": ratios.of_parts(parts)}
    args.page.with_suffix(".json").write_text(
        json.dumps(page.public(content), indent=1) + "\n", encoding="utf-8"
    )
    say(f"written: {args.page} and {args.page.with_suffix('.json').name}")


def keep_ratios(args, parts):
    """Those of the parts as the stored ones; with --only, beside what is stored of others."""
    described = next(iter(parts.values()))["machine"] if parts else {}
    content = ratios.to_store(ratios.of_parts(parts), described)
    if args.only and args.ratios.exists():
        content = ratios.merged(ratios.read_store(args.ratios), content, args.only)
    args.ratios.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def check(args, parts):
    """The exit status: 1 if a ratio is worse than its tolerance allows, or if nothing or not all
    could be compared.
    """
    stored = ratios.read_store(args.ratios)
    verdicts, absent = ratios.compare(stored, ratios.of_parts(parts))
    worse = [verdict for verdict in verdicts if verdict.worse]
    for v in sorted(worse, key=lambda v: v.allowed - v.worse_by):
        print(f"worse: {v.name}: {v.now:.4g}, stored {v.stored:.4g}, allowed {v.allowed:.2g} worse")
    for name in absent:
        print(f"not measured: {name}")
    print(f"{len(verdicts)} ratios compared, {len(worse)} worse, {len(absent)} not measured")
    whole = not (args.quick or args.only)
    return 1 if worse or not verdicts or (whole and absent) else 0


def main(argv=None):
    args = arguments(argv)
    store = Store(args.output)
    missing = {} if args.no_measure else measure(store, args)
    parts = store.all()
    chosen = (
        {name: record for name, record in parts.items() if name in args.only}
        if args.only
        else parts
    )
    try:
        if args.store:
            keep_ratios(args, chosen)
        if args.check:
            return check(args, chosen)
    except ratios.BadStore as problem:
        say(f"report.py: error: {problem}")
        return 1
    write_page(args, parts, missing)
    return 0
