"""Reads the file of a study. docs/research/studies.md has every key."""

import math
import pathlib
import re

from ..sweeps.configuration import BadConfig
from .arms import Arms, filled
from .design import Comparison, Results, Rung, Shared, Study, Tuning
from .file import Checker, parse
from .sampler import SAMPLERS
from .sobol import DIMENSIONS

KEYS = (
    "title",
    "scale",
    "protocol",
    "corpus",
    "programs",
    "repeat",
    "ledger",
    "set",
    "axes",
    "arms",
    "shared",
    "tuning",
    "results",
    "comparisons",
    "described",
)
SHARED_KEYS = ("name", "arms", "for", "values", "at", "seed", "budget", "set")
TUNING_KEYS = ("name", "arms", "seed", "sampler", "sampler_seed", "rungs", "widen", "edge", "set")
RUNG_KEYS = ("points", "keep", "budget")
WIDEN_KEYS = ("times", "factor", "points")
RESULTS_KEYS = ("name", "arms", "budget", "seeds", "set", "scale")
KINDS = ("difference", "equivalence", "interaction")
COMPARISON_KEYS = ("name", "kind", "arms", "results", "margin", "family", "only", "except")
DESCRIBED_KEYS = ("name", "kind", "arms", "results", "only", "except")
QUICK = 0.02  # of the budgets, in a trial
HASH = re.compile(r"[0-9a-f]{64}")
PROGRAM = re.compile(r"(binary:)?[0-9a-f]{16}")


def add_study(parser):
    """The arguments that say which study is meant."""
    parser.add_argument("study", metavar="STUDY.json", help="file of the study")
    parser.add_argument(
        "--quick",
        type=float,
        nargs="?",
        const=QUICK,
        default=1.0,
        metavar="FACTOR",
        help=(
            "a trial in quick/ beside the file: all budgets times FACTOR, which is"
            f" {QUICK:g} if it is left out"
        ),
    )
    parser.add_argument("--ledger", help="CSV of finished cells; default: as the study's file says")


def read(path, quick=1.0):
    """The Study of a file; BadConfig names all that is wrong with it."""
    path = pathlib.Path(path)
    if not 0 < quick <= 1:
        raise BadConfig(f"--quick {quick:g}: expected a factor above 0 and at most 1")
    checker = Checker(path)
    found = {"arms": {}, **checker.object(parse(path), "the file", KEYS)}
    arms = Arms(checker, path.parent, found)
    study = Study(path, arms, quick)
    _Reader(checker, study, found).read()
    checker.done()
    return study


class _Reader:
    """Reads all but the arms."""

    def __init__(self, checker, study, found):
        self.checker, self.study, self.arms, self.found = checker, study, study.arms, found

    def read(self):
        checker, study, found = self.checker, self.study, self.found
        study.title = checker.of(found, "title", "", checker.text, study.path.stem)
        study.changes = self.arms.settings(found.get("set", {}), "set")
        self.arms.check_reaches(study.changes, "set")
        study.ledger = study.output / checker.of(found, "ledger", "", checker.text, "runs.csv")
        study.repeat = checker.of(found, "repeat", "", checker.whole, 0)
        self._provenance()
        study.shared = self._parts("shared", self._shared)
        study.tuning = self._parts("tuning", self._tuning)
        study.results = self._parts("results", self._results)
        self._check_names()
        self._check_tuned_once()
        self._check_set_once()
        study.comparisons = self._comparisons("comparisons", COMPARISON_KEYS, KINDS)
        study.untested = self._comparisons(
            "described", DESCRIBED_KEYS, ("difference", "interaction")
        )

    def _provenance(self):
        checker, study = self.checker, self.study
        if name := checker.of(self.found, "protocol", "", checker.text):
            study.protocol = study.path.parent / name
            if not study.protocol.is_file():
                checker.bad("protocol", name, "a file, by its path from the study's")
        study.corpus = checker.of(self.found, "corpus", "", checker.text, "")
        if study.corpus and not HASH.fullmatch(study.corpus):
            checker.bad("corpus", study.corpus, "64 hex digits; check --tokens DIR prints them")
        programs = self.found.get("programs", "any")
        if programs != "any":
            study.programs = tuple(checker.list(programs, "programs", checker.text))
            for index, one in enumerate(study.programs):
                if not PROGRAM.fullmatch(one):
                    accepted = '16 hex digits, or "any" for the list; check --program P prints them'
                    checker.bad(f"programs[{index}]", one, accepted)

    def _parts(self, section, read):
        parts = self.checker.list(self.found.get(section, []), section, least=0)
        return [read(part, f"{section}[{index}]", index) for index, part in enumerate(parts)]

    # --- stages

    def _shared(self, value, where, index):
        checker = self.checker
        found = checker.object(value, where, SHARED_KEYS)
        arms = self.arms.chosen(found.get("arms", []), f"{where}.arms")
        return Shared(
            checker.of(found, "name", where, checker.text, f"shared {index + 1}"),
            tuple(arms),
            tuple(self.arms.chosen(found["for"], f"{where}.for") if "for" in found else arms),
            self._lists(found, "values", where, 2),
            self._lists(found, "at", where, 1) if "at" in found else {},
            self._seed(found, where),
            self._budget(found, where),
            self.arms.settings(found.get("set", {}), f"{where}.set"),
        )

    def _lists(self, found, key, where, least):
        """{key: [value, ...]}"""
        here = f"{where}.{key}"
        lists = self.checker.object(found.get(key, {}), here)
        if not lists:
            self.checker.bad(here, found.get(key, "nothing"), "an object {section.key: [values]}")
        self.arms.settings(dict.fromkeys(lists), here)
        return {
            inner: self.checker.list(values, f"{here}.{inner}", self.checker.scalar, least=least)
            for inner, values in lists.items()
        }

    def _seed(self, found, where):
        self.checker.needed(found, "seed", where, "a whole number that no result has")
        return self.checker.of(found, "seed", where, self.checker.whole, -1)

    def _budget(self, found, where):
        self.checker.needed(found, "budget", where, "a multiple of 20 tokens a parameter")
        budget = self.checker.of(found, "budget", where, self.checker.number, 1, above=0)
        return float(budget) * self.study.quick

    def _tuning(self, value, where, index):
        checker = self.checker
        found = checker.object(value, where, TUNING_KEYS)
        arms = self.arms.chosen(found.get("arms", []), f"{where}.arms")
        tuned = [arm for arm in arms if not self.study.arm(arm).tuned_as]
        sampler = checker.of(found, "sampler", where, checker.text, "sobol", among=SAMPLERS)
        rungs = self._rungs(found.get("rungs", []), f"{where}.rungs", sampler)
        widen = checker.object(found.get("widen", {}), f"{where}.widen", WIDEN_KEYS)
        number = checker.number
        self._check_knobs(tuned, where, sampler, rungs)
        points = rungs[0].points if rungs else 0
        return Tuning(
            checker.of(found, "name", where, checker.text, f"tuning {index + 1}"),
            tuple(tuned),
            self._seed(found, where),
            sampler,
            checker.of(found, "sampler_seed", where, checker.whole, 0),
            tuple(rungs),
            checker.of(widen, "times", f"{where}.widen", checker.whole, 1 if widen else 0),
            checker.of(widen, "factor", f"{where}.widen", number, 2, above=1),
            checker.of(
                widen, "points", f"{where}.widen", checker.whole, max(1, points // 3), least=1
            ),
            checker.of(found, "edge", where, number, _edge(points), least=0, most=0.5),
            self.arms.settings(found.get("set", {}), f"{where}.set"),
        )

    def _rungs(self, value, where, sampler):
        rungs = []
        for index, one in enumerate(self.checker.list(value, where)):
            here = f"{where}[{index}]"
            found = self.checker.object(one, here, RUNG_KEYS)
            key, other = ("points", "keep") if index == 0 else ("keep", "points")
            if other in found:
                self.checker.bad(
                    f"{here}.{other}", found[other], f"{key}, for this is rung {index + 1}"
                )
            if not (index == 0 and sampler == "grid"):
                self.checker.needed(found, key, here, "a whole number, at least 1")
            count = self.checker.of(found, key, here, self.checker.whole, 0, least=1)
            if index > 1 and rungs[-1].keep < count:
                self.checker.bad(f"{here}.keep", count, f"at most the {rungs[-1].keep} kept before")
            rungs.append(Rung(self._budget(found, here), **{key: count}))
        return rungs

    def _check_knobs(self, arms, where, sampler, rungs):
        for name in arms:
            knobs, here = self.study.arm(name).knobs, f"{where}.arms: {name}"
            if not knobs:
                self.checker.bad(here, "no knobs", "an arm with knobs, or with tuned_as")
            if sampler == "sobol" and len(knobs) > DIMENSIONS:
                self.checker.bad(here, f"{len(knobs)} knobs", f"at most {DIMENSIONS} with sobol")
            discrete = [len(knob.values or (knob.grid() if knob.step else ())) for knob in knobs]
            points = rungs[0].points if rungs else 0
            if knobs and all(discrete) and sampler != "grid" and math.prod(discrete) < points:
                accepted = f"{points} different points, as rungs[0].points says"
                self.checker.bad(here, f"{math.prod(discrete)} combinations of values", accepted)
        if sampler == "grid":
            sizes = {name: self._grid_size(name, where, rungs) for name in arms}
            if len(set(sizes.values())) > 1:
                told = ", ".join(f"{size} of {name}" for name, size in sizes.items())
                self.checker.bad(where, f"grids of {told} points", "as many for every arm")

    def _grid_size(self, name, where, rungs):
        size, knobs, where = 1, self.study.arm(name).knobs, f"{where}.arms: {name}"
        for knob in knobs:
            length = len(knob.grid())
            if not length:
                accepted = "step, count or values, which the sampler grid needs"
                self.checker.bad(where, f"knob {knob.key} without a grid", accepted)
            size *= max(1, length)
        if rungs and rungs[0].points not in (0, size):
            self.checker.bad(where, f"{size} points of its grid", f"points: {rungs[0].points}")
        return size

    def _results(self, value, where, index):
        checker = self.checker
        found = checker.object(value, where, RESULTS_KEYS)
        seeds = found.get("seeds", 3)
        if type(seeds) is int and seeds > 0:
            seeds = list(range(1, seeds + 1))
        elif not isinstance(seeds, list):
            checker.bad(f"{where}.seeds", seeds, "a list of whole numbers, or how many")
            seeds = []
        seeds = checker.list(seeds, f"{where}.seeds", checker.whole)
        arms = self.arms.chosen(found.get("arms", []), f"{where}.arms")
        scale = checker.of(found, "scale", where, checker.text, "")
        self.arms.check_scale(arms, scale, f"{where}.scale")
        if len(set(seeds)) < len(seeds):
            checker.bad(f"{where}.seeds", seeds, "each seed once")
        return Results(
            checker.of(found, "name", where, checker.text, f"results {index + 1}"),
            tuple(arms),
            self._budget(found, where),
            tuple(seeds),
            self.arms.settings(found.get("set", {}), f"{where}.set"),
            scale,
        )

    # --- what holds between the parts

    def _check_names(self):
        parts = self.study.parts()
        for name in parts:
            if parts.count(name) > 1:
                self.checker.bad("name", name, "a name that no other part has")
        reported = {seed for part in self.study.results for seed in part.seeds}
        for section in ("shared", "tuning"):
            for index, part in enumerate(getattr(self.study, section)):
                if part.seed in reported:
                    accepted = f"a seed that is not reported; results have {_listed(reported)}"
                    self.checker.bad(f"{section}[{index}].seed", part.seed, accepted)

    def _check_tuned_once(self):
        seen = {}
        for group in self.study.tuning:
            for arm in group.arms:
                if arm in seen:
                    self.checker.bad(f"tuning: {group.name}", arm, f"arms not in {seen[arm]}")
                seen[arm] = group.name
        for name, arm in self.arms.by_name.items():
            if arm.tuned_as and arm.tuned_as in self.arms.by_name and arm.tuned_as not in seen:
                self.checker.bad(f"arms.{name}.tuned_as", arm.tuned_as, "an arm of a tuning group")

    def _check_set_once(self):
        """A key that is chosen for an arm once cannot be tuned for it, too."""
        for index, shared in enumerate(self.study.shared):
            for key in shared.values:
                knobs = [
                    name
                    for name in shared.targets
                    if key in [knob.key for knob in self.study.arm(name).knobs]
                ]
                if knobs:
                    accepted = "a key that is no knob of the arms that take it"
                    self.checker.bad(
                        f"shared[{index}].values.{key}", f"a knob of {knobs[0]}", accepted
                    )

    def _comparisons(self, section, keys, kinds):
        found = []
        for index, value in enumerate(
            self.checker.list(self.found.get(section, []), section, least=0)
        ):
            found += self._comparison(value, f"{section}[{index}]", keys, kinds)
        names = [one.name for one in found]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            self.checker.bad(section, name, "each name once; {axis} in it tells them apart")
        return found

    def _comparison(self, value, where, keys, kinds):
        checker = self.checker
        found = checker.object(value, where, keys)
        checker.needed(found, "name", where, "a text")
        name = checker.of(found, "name", where, checker.text, "")
        kind = checker.of(found, "kind", where, checker.text, "difference", among=kinds)
        excepted = found.get("except", [])
        return [
            self._one_comparison(found, kind, name, combination, where)
            for combination in self.arms.combinations(name, where, found.get("only"), excepted)
        ]

    def _one_comparison(self, found, kind, name, combination, where):
        checker = self.checker
        arms = filled(found.get("arms", []), combination)
        flat = self._arms_of(arms, kind, f"{where}.arms")
        margin = checker.of(found, "margin", where, checker.number, 0.0, above=0)
        if (kind == "equivalence") != bool(margin):
            accepted = "a margin in nats with kind equivalence, and with no other"
            checker.bad(f"{where}.margin", found.get("margin", "nothing"), accepted)
        return Comparison(
            filled(name, combination),
            kind,
            tuple(map(tuple, arms)) if flat and kind == "interaction" else tuple(flat),
            self._results_of(found, flat, combination, where),
            float(margin),
            filled(checker.of(found, "family", where, checker.text, "all"), combination),
        )

    def _arms_of(self, arms, kind, where):
        """All arms that a comparison names; [] where the form is wrong."""
        pairs = arms if kind == "interaction" else [arms]
        count = 2 if kind == "interaction" else 1
        well_formed = (
            isinstance(arms, list)
            and len(pairs) == count
            and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
        )
        if not well_formed:
            accepted = "[[a1, a2], [b1, b2]]" if kind == "interaction" else "[a, b]"
            self.checker.bad(where, arms, f"{accepted}, names of arms")
            return []
        flat = [name for pair in pairs for name in pair]
        known = [self.arms.one(name, where) for name in flat]
        return [] if None in known else flat

    def _results_of(self, found, arms, combination, where):
        """The part of results that is compared: the one named, else the only one with the arms."""
        having = [part.name for part in self.study.results if set(arms) <= set(part.arms)]
        name = filled(found.get("results", ""), combination)
        if (not name and len(having) == 1) or not arms:
            return having[0] if having else ""
        if name not in having:
            accepted = f"one of results that has all arms: {', '.join(having) or 'none has'}"
            self.checker.bad(f"{where}.results", name or "nothing", accepted)
        return name


def _edge(points):
    """A tenth of a range, or the share next to its end in which few points have one or none."""
    return max(0.1, min(0.25, 1 / points if points else 0.1))


def _listed(seeds):
    return ", ".join(map(str, sorted(seeds)))
