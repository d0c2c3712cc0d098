"""Runs a study: tunes, then runs the results, in the order of its file.

    scripts/study.py run STUDY.json --program build/program/mpretrain --tokens data --work runs

What is finished is in the ledger and not run again; what was interrupted goes on from its last
checkpoint. Stop it at any time, also by killing it, and start it with the same arguments.
"""

import argparse
import math
import os
import sys

from .. import repository
from ..sweeps import options
from ..sweeps.cell import tokens_identity
from ..sweeps.configuration import BadConfig
from ..sweeps.launch import launcher_of
from ..sweeps.plan import plan
from ..sweeps.progress import LiveTable, duration, work_of_step
from ..sweeps.runner import Place, Runner, spelled, steps_of
from ..sweeps.stop import Stop
from . import corpus, program, protocol, reader, search
from .arms import matches
from .known import Known
from .rows import OfProgram, collector


def parser():
    found = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    reader.add_study(found)
    options.add_program(found)
    options.add_place(found)
    found.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PART",
        help="run only this part or arm, a pattern such as 'adamw_*'; may be given several times",
    )
    found.add_argument(
        "--dry-run", action="store_true", help="run nothing; list the cells with estimated times"
    )
    options.add_running(found)
    return found


def main():
    args = parser().parse_args()
    study = reader.read(args.study, args.quick)
    if args.tokens is None:
        raise BadConfig(
            "--tokens: found nothing, expected a directory that `mpretrain tokenize` wrote"
        )
    tokens_identity(str(args.tokens))
    made_by = program.program_of(args.program)
    _check_program(study, made_by)
    text = corpus.check(study, args.tokens)[:16]
    known = Known(study, args.ledger, text)
    chosen = Chosen(study, args.only)
    if args.dry_run:
        return Listing(study, known, chosen, args).show()
    return Session(study, known, chosen, made_by, args).run()


def _check_program(study, made_by):
    if study.programs and made_by.hash not in study.programs:
        raise BadConfig(
            f"{study.path}: programs: found --program {made_by.path} with {made_by.hash}, expected"
            f" one of {', '.join(study.programs)}; add it there if its results may stand beside"
            " theirs"
        )


class Chosen:
    """What --only leaves: parts and arms, all where it is not given."""

    def __init__(self, study, patterns):
        self.parts = [name for name in study.parts() if matches(name, patterns)]
        self.arms = [name for name in study.arms.by_name if matches(name, patterns)]
        for pattern in patterns:
            names = [*self.parts, *self.arms]
            if not any(matches(name, [pattern]) for name in names):
                accepted = ", ".join([*study.parts(), "or an arm"])
                raise BadConfig(
                    f"--only {pattern}: found no such part or arm in {study.path}, expected"
                    f" {accepted}"
                )

    def takes(self, part, arm):
        return (not self.parts or part in self.parts) and (not self.arms or arm in self.arms)

    def of(self, part, labelled):
        """Those that are left of [(arm, cell), ...] of a part."""
        return [(arm, cell) for arm, cell in labelled if self.takes(part, arm)]


class Session:
    """One start of a study."""

    def __init__(self, study, known, chosen, made_by, args):
        self.study, self.known, self.chosen, self.made_by = study, known, chosen, made_by
        launcher = launcher_of(args.launcher, made_by.path, args.threads, wait=not args.no_wait)
        jobs = args.jobs or launcher.default_jobs
        if study.quick != 1:
            print(f"a trial with {study.quick:g} of all budgets: {study.output}", file=sys.stderr)
        work = args.work / made_by.hash.replace(":", "_")  # no run goes on with another program
        place = Place(made_by.path, args.tokens, work, args.threads, jobs, args.retry)
        collect = collector(
            self._shown_config,
            corpus=known.corpus,
            program=made_by.hash,
            protocol=protocol.short_hash(study),
        )
        self.names, self.failed, self.queued = {}, False, args.no_wait
        self.asked, self.started = set(), False  # cells of what is chosen; whether any was run
        self.runner = Runner(
            place,
            OfProgram(known.ledger, made_by.hash),
            launcher,
            made_by.version,
            LiveTable(study.path.stem, jobs, names=self.names),
            Stop().listen(),
            collect,
        )

    def _shown_config(self, cell):
        """Own configurations by their path from the study's file."""
        if not os.path.isabs(cell.config):
            return cell.config  # of configs/
        return os.path.relpath(cell.config, self.study.path.parent.resolve())

    def run(self):
        walked = search.walk(self.study, self.evaluate)
        self._repeat(walked)
        waiting = {place: why for place, why in walked.waiting.items() if self.chosen.takes(*place)}
        for (part, arm), why in waiting.items():
            print(f"{part}: {arm} not run: {why}", file=sys.stderr)
        if not self.started and not waiting:
            print(nothing_to_run(self.known, self.asked))
        return 1 if self.failed or (waiting and not self.queued) else 0

    def evaluate(self, part, labelled):
        """Rows of the cells, those that are missing run before."""
        chosen = self.chosen.of(part, labelled)
        self.asked.update(cell.identity() for _, cell in chosen)
        missing = [(arm, cell) for arm, cell in chosen if self.known.get(cell) is None]
        if missing:
            self._run(part, missing)
        return [self.known.get(cell) for _, cell in labelled]

    def _run(self, part, labelled):
        self.started = True
        for arm, cell in labelled:
            changes = self.study.described(arm, cell) if part in self._tuning_parts() else ""
            self.names[cell] = f"{part}: {arm} seed {cell.seed} {changes}".strip()
        if not self.runner.run([cell for _, cell in labelled]):
            self.failed = True
        self.known.read()

    def _tuning_parts(self):
        return [part.name for part in (*self.study.shared, *self.study.tuning)]

    def _repeat(self, walked):
        """Cells of other programs once more by this one, to bound the drift."""
        cells = repeated(self.study, self.known, walked, self.made_by.hash)
        if cells and not self.chosen.parts and not self.chosen.arms:
            self._run("repeat", [("again", cell) for cell in cells])


def repeated(study, known, walked, program_hash):
    """The first `repeat` cells of results that older programs alone computed, or that this program
    repeated.
    """
    found = []
    for cells in walked.cells.values():
        for cell in cells.values():
            rows = known.all_of(cell)
            if any(row.program != program_hash for row in rows) and cell not in found:
                found.append(cell)
    return sorted(found, key=lambda cell: cell.identity())[: study.repeat]


def nothing_to_run(known, cells):
    """What a start says that finds all its cells finished."""
    return (
        f"nothing to run: {len(cells)} cells are in {known.ledger.path}; with --ledger and another"
        " file they are run again"
    )


class Listing:
    """--dry-run: what would be run as far as it is known, and about how long it takes."""

    def __init__(self, study, known, chosen, args):
        self.study, self.known, self.chosen, self.args = study, known, chosen, args
        self.missing, self.asked = (
            {},
            set(),
        )  # {part: [(arm, cell), ...]}; all cells of what is chosen
        self.seconds = {}

    def show(self):
        walked = search.walk(self.study, self._note)
        total = sum(self._show_part(part, labelled) for part, labelled in self.missing.items())
        later = list(self._later(walked))
        if not self.missing and not later:
            print(nothing_to_run(self.known, self.asked))
            return 0
        for line in later:
            print(line)
        print(f"in all {self._told(total)} for the cells above")
        return 0

    def _show_part(self, part, labelled):
        """Prints its cells; the seconds they take one after the other."""
        total = 0.0
        for arm, cell in labelled:
            steps = steps_of(cell)
            seconds = steps * self._step_seconds(cell)
            total += seconds
            which = f"{part}: {arm} seed {cell.seed} {self.study.described(arm, cell)}"
            print(f"{which}, {steps} steps, {duration(seconds)}")
        print(f"{part}: {len(labelled)} cells to run, {self._told(total)}")
        return total

    def _told(self, seconds):
        jobs = self.args.jobs or 1
        return f"{duration(seconds / jobs)} with {jobs} at a time (--jobs)"

    def _note(self, part, labelled):
        for arm, cell in self.chosen.of(part, labelled):
            self.asked.add(cell.identity())
            if self.known.get(cell) is None:
                self.missing.setdefault(part, []).append((arm, cell))
        return [self.known.get(cell) for _, cell in labelled]

    def _later(self, walked):
        """What depends on cells that are not finished."""
        for group in self.study.tuning:
            certain, possible = search.runs_at_least(group, self.study)
            seen = sum(len(walked.tuned[arm].trials) for arm in group.arms)
            if any(walked.tuned[arm].best is None for arm in group.arms):
                more = f" and at most {possible} where ranges are widened" if possible else ""
                print_count = max(0, certain - seen)
                yield f"{group.name}: {print_count} later cells depend on those before{more}"
        waiting = {}
        for part, arm in walked.waiting:
            if self.chosen.takes(part, arm):
                waiting.setdefault(part, []).append(arm)
        for part in self.study.results:
            if arms := waiting.get(part.name):
                count = len(arms) * len(part.seeds)
                yield f"{part.name}: {count} cells of {len(arms)} arms wait for their values"

    def _step_seconds(self, cell):
        """As measured in the ledger for the model and batch, else as `mpretrain plan` estimates."""
        key = (cell.config, work_of_step(cell))
        if key not in self.seconds:
            self.seconds[key] = self._measured(cell) or self._planned(cell)
        return self.seconds[key]

    def _measured(self, cell):
        tokens = cell.value("batch.tokens_per_step", 131072)
        config = cell.config.rpartition("/")[2]
        found = [
            row.wall_seconds / row.steps
            for row in self.known.rows
            if row.config.rpartition("/")[2] == config
            and row.steps
            and abs(row.tokens / row.steps - tokens) < 1
        ]
        return sum(found) / len(found) if found else None

    def _planned(self, cell):
        sets = [f"{key}={spelled(value)}" for key, value in cell.changes]
        sets += ["data.tokenizer=null", f"device.threads={self.args.threads}"]
        try:
            seconds = plan(self.args.program, str(repository.CONFIGS / cell.config), *sets)["time"]
            return float(seconds["seconds_per_step"])
        except (BadConfig, KeyError, TypeError):
            return math.nan
