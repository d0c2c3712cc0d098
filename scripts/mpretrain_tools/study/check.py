"""Tells what is wrong with a study's file, all of it at once, and what the study consists of.

    scripts/study.py check STUDY.json [--program PROGRAM] [--tokens DIRECTORY]

With --program, `mpretrain plan` reads every arm's configuration; with --tokens, their hash is
printed, which the file may pin.
"""

import argparse
import pathlib
import sys

from ..sweeps.configuration import BadConfig
from ..sweeps.plan import run_plan
from ..sweeps.runner import parameters_of, spelled
from . import corpus, program, reader, search
from .sampler import Space


def parser():
    found = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    found.add_argument("study", metavar="STUDY.json", help="file of the study")
    found.add_argument("--program", help="mpretrain: have it read every arm's configuration")
    found.add_argument("--tokens", type=pathlib.Path, help="print the hash of these tokens")
    return found


def main():
    args = parser().parse_args()
    study = reader.read(args.study)
    for line in described(study):
        print(line)
    if args.program:
        made_by = program.program_of(args.program)
        print(f"program {made_by.hash}: {made_by.version}")
        refused = list(refused_by(made_by.path, study))
        if refused:
            print("\n".join(refused), file=sys.stderr)
            return 1
    if args.tokens:
        print(f"corpus {corpus.hash_of(str(args.tokens))}")
        corpus.check(study, args.tokens)
    return 0


def described(study):
    """Lines: arms, and how many cells each part has."""
    for name, arm in study.arms.by_name.items():
        cell = study.cell(name, 1, 1)
        knobs = ", ".join(f"{knob.key} in {knob.described()}" for knob in arm.knobs)
        tuned = f"tuned as {arm.tuned_as}" if arm.tuned_as else knobs or "not tuned"
        print_name = f"arm {name} ({arm.label})"
        yield f"{print_name}: {arm.config}, {parameters_of(cell):,} parameters; {tuned}"
    for shared in study.shared:
        cells = len(search.shared_points(shared)) * len(shared.arms)
        yield f"{shared.name}: {cells} cells for {', '.join(shared.values)}"
    for group in study.tuning:
        certain, possible = search.runs_at_least(group, study)
        arms = f"{len(group.arms)} arms, {certain // max(1, len(group.arms))} cells each"
        wider = f"and up to {possible} where ranges are widened"
        yield f"{group.name}: {arms}, {certain} in all, {wider}"
    for part in study.results:
        yield f"{part.name}: {len(part.arms) * len(part.seeds)} cells at budget {part.budget:g}"
    for one in study.comparisons:
        yield f"{one.family}: {one.name}: {one.kind} of {one.arms} in {one.results}"
    for one in study.untested:
        yield f"described: {one.name}: {one.kind} of {one.arms} in {one.results}"


def refused_by(path, study):
    """What the program says of arms whose configuration it does not take."""
    for name, arm in study.arms.by_name.items():
        try:
            values = {}
            if group := study.tuned_in(name):
                space = Space(study.arm(arm.tuned_as or name).knobs, group.sampler, 0)
                point = space.first(1)[0]
                values = search.settings(point, space.knobs, study.cell(name, 1, 1).value)
            cell = study.cell(name, 1, 1, values)
            sets = [f"{key}={spelled(value)}" for key, value in cell.changes]
            run_plan(path, ["--json"], cell.config, sets)
        except BadConfig as problem:
            yield f"{study.path}: arms.{name}: {problem}"
