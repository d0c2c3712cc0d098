"""Goes through a study: shared values, tuning, results, each from what the cells before it came
to.

walk() takes the same way whenever it is given the same losses. So a study that was stopped is begun
again from the start with what its ledger remembers, and a report goes the way again without running
anything. evaluate(part, [(arm, cell), ...]) returns a row for each cell, None where there is none.
"""

import itertools
import math
from dataclasses import dataclass, field

from .knobs import settings
from .sampler import Space


@dataclass
class Trial:
    """One run of a search."""

    arm: str
    point: dict  # {knob: value searched}
    settings: dict  # {key: value} of the configuration
    rung: int
    wave: int  # 0, or how often the ranges had been widened
    cell: object
    row: object = None

    @property
    def loss(self):
        """inf of a diverged run; None while it is not finished."""
        return None if self.row is None else self.row.val_loss


@dataclass
class Tuned:
    """What was found for an arm."""

    arm: str
    group: object
    trials: list = field(default_factory=list)
    moved: list = field(default_factory=list)  # (wave, key, old knob, new knob)
    knobs: list = field(default_factory=list)  # as they ended
    best: Trial = None  # None while it is not finished

    @property
    def edges(self):
        """{key: low or high} of the best point, in the ranges as they ended."""
        return _edges(self.best, self.knobs, self.group.edge) if self.best else {}

    @property
    def done(self):
        return sum(trial.row is not None for trial in self.trials)


@dataclass
class SharedFound:
    """What a shared sweep found."""

    shared: object
    cells: list = field(default_factory=list)
    scores: list = field(default_factory=list)  # ({key: value}, {arm: best loss or None})
    chosen: dict = None  # None while it is not finished


@dataclass
class Walked:
    """All that is known of a study."""

    shared: list = field(default_factory=list)
    tuned: dict = field(default_factory=dict)  # {arm: Tuned}
    rows: dict = field(default_factory=dict)  # {(results, arm): {seed: row or None}}
    waiting: dict = field(default_factory=dict)  # {(results, arm): why its cells are not known}
    cells: dict = field(default_factory=dict)  # {(results, arm): {seed: cell}}

    def all_cells(self):
        """Of all parts, as far as they are known."""
        yield from (cell for found in self.shared for cell in found.cells)
        yield from (trial.cell for tuned in self.tuned.values() for trial in tuned.trials)
        yield from (cell for of_seeds in self.cells.values() for cell in of_seeds.values())


def walk(study, evaluate):
    """A Walked, as far as the rows go."""
    found = Walked()
    for shared in study.shared:
        found.shared.append(sweep_shared(study, shared, found, evaluate))
    for group in study.tuning:
        found.tuned.update(tune(study, group, found, evaluate))
    for part in study.results:
        _results(study, part, found, evaluate)
    return found


# --- shared values


def sweep_shared(study, shared, walked, evaluate):
    """The values with the lowest mean over the arms, of each arm its best at the points tried. A
    diverged arm counts as worse than any number of others that did not.
    """
    found = SharedFound(shared)
    at = _products(shared.at)
    earlier = {arm: shared_values(walked, arm) or {} for arm in shared.arms}
    labelled = [
        (
            arm,
            study.cell(
                arm, shared.seed, shared.budget, earlier[arm], shared.changes, values, point
            ),
        )
        for values in _products(shared.values)
        for point in at
        for arm in shared.arms
    ]
    found.cells = [cell for _, cell in labelled]
    rows = iter(evaluate(shared.name, labelled))
    for values in _products(shared.values):
        losses = {arm: [] for arm in shared.arms}
        for _ in at:
            for arm in shared.arms:
                losses[arm].append(next(rows))
        best = {
            arm: None if None in tried else min(row.val_loss for row in tried)
            for arm, tried in losses.items()
        }
        found.scores.append((values, best))
    if all(None not in best.values() for _, best in found.scores):
        found.chosen = min(found.scores, key=lambda score: _mean_rank(score[1].values()))[0]
    return found


def _mean_rank(losses):
    finite = [loss for loss in losses if math.isfinite(loss)]
    return len(list(losses)) - len(finite), sum(finite)


def shared_points(shared):
    """What a shared sweep tries of each arm."""
    return list(itertools.product(_products(shared.values), _products(shared.at)))


def _products(lists):
    return [dict(zip(lists, values)) for values in itertools.product(*lists.values())]


def shared_values(walked, arm):
    """{key: value} of all shared sweeps for the arm; None if one is not finished."""
    values = {}
    for found in walked.shared:
        if arm in found.shared.targets:
            if found.chosen is None:
                return None
            values.update(found.chosen)
    return values


# --- tuning


def tune(study, group, walked, evaluate):
    """{arm: Tuned}. The arms go on side by side: where the ranges of one are widened, each of the
    others tries as many more points inside its own.
    """
    found = {arm: Tuned(arm, group) for arm in group.arms}
    ready = [arm for arm in group.arms if shared_values(walked, arm) is not None]
    search = _Search(study, group, walked, evaluate, found, ready)
    search.first()
    if search.widen():
        search.halve()
    for arm in found:
        found[arm].knobs = search.spaces[arm].knobs if arm in search.spaces else []
    return found


class _Search:
    def __init__(self, study, group, walked, evaluate, found, ready):
        self.study, self.group, self.walked, self.evaluate = study, group, walked, evaluate
        self.found, self.ready = found, ready
        self.spaces = {
            arm: Space(study.arm(arm).knobs, group.sampler, group.sampler_seed) for arm in ready
        }

    def first(self):
        points = self.group.rungs[0].points
        self._run({arm: self.spaces[arm].first(points) for arm in self.ready}, 0, 0)

    def widen(self):
        """False where it is not known yet whether a range has to be widened."""
        group = self.group
        for wave in range(1, group.widen_times + 1):
            if len(self.ready) < len(group.arms) or not all(map(self._is_known, self.ready)):
                return False
            moved = {arm: self._moved(arm) for arm in self.ready}
            if not any(moved.values()):
                break
            points = {}
            for arm in self.ready:
                self.found[arm].moved += [(wave, key, *knobs) for key, knobs in moved[arm].items()]
                best = self._best(arm, 0).point
                points[arm] = self.spaces[arm].more(group.widen_points, best, moved[arm])
            self._run(points, 0, wave)
        return True

    def _moved(self, arm):
        space = self.spaces[arm]
        return space.widen(
            _edges(self._best(arm, 0), space.knobs, self.group.edge), self.group.widen_factor
        )

    def halve(self):
        for index, rung in enumerate(self.group.rungs[1:], 1):
            going_on = [arm for arm in self.ready if self._is_known(arm)]
            kept = {
                arm: [trial.point for trial in self._ordered(arm, index - 1)[: rung.keep]]
                for arm in going_on
            }
            waves = {arm: max(trial.wave for trial in self.found[arm].trials) for arm in going_on}
            self._run(kept, index, waves)
        for arm in self.ready:
            if self._is_known(arm):
                self.found[arm].best = self._best(arm, len(self.group.rungs) - 1)

    def _run(self, points, rung, waves):
        """Trials of {arm: points}, a point of each arm after the other."""
        by_arm = {
            arm: [self._trial(arm, point, rung, waves) for point in of_arm]
            for arm, of_arm in points.items()
        }
        trials = [
            trial
            for of_all in itertools.zip_longest(*by_arm.values())
            for trial in of_all
            if trial is not None
        ]
        rows = self.evaluate(self.group.name, [(trial.arm, trial.cell) for trial in trials])
        for trial, row in zip(trials, rows):
            trial.row = row
            self.found[trial.arm].trials.append(trial)

    def _trial(self, arm, point, rung, waves):
        group, knobs = self.group, self.spaces[arm].knobs
        shared = shared_values(self.walked, arm)
        base = self.study.cell(arm, group.seed, 1, shared, group.changes)
        values = settings(point, knobs, base.value)
        cell = self.study.cell(
            arm, group.seed, group.rungs[rung].budget, shared, group.changes, values
        )
        wave = waves[arm] if isinstance(waves, dict) else waves
        return Trial(arm, point, values, rung, wave, cell)

    def _is_known(self, arm):
        return all(trial.row is not None for trial in self.found[arm].trials)

    def _ordered(self, arm, rung):
        """The arm's trials in a rung, the best first, of equals the one tried first."""
        trials = [trial for trial in self.found[arm].trials if trial.rung == rung]
        return sorted(trials, key=lambda trial: trial.loss)

    def _best(self, arm, rung):
        return self._ordered(arm, rung)[0]


def _edges(trial, knobs, margin):
    found = {knob.key: knob.edge(trial.point[knob.key], margin) for knob in knobs}
    return {key: side for key, side in found.items() if side}


def runs_at_least(group, study):
    """Cells of a group whose number is known beforehand, and how many more widening may add."""
    first = [
        group.rungs[0].points or math.prod(len(knob.grid()) for knob in study.arm(arm).knobs)
        for arm in group.arms
    ]
    kept = sum(rung.keep for rung in group.rungs[1:]) * len(group.arms)
    return sum(first) + kept, group.widen_times * group.widen_points * len(group.arms)


# --- results


def values_of(study, walked, arm):
    """({key: value} of shared sweeps and tuning, ""), or (None, why they are not known yet)."""
    shared = shared_values(walked, arm)
    if shared is None:
        return None, "its shared values are not chosen yet"
    group = study.tuned_in(arm)
    if group is None:
        return shared, ""
    tuned = walked.tuned[study.arm(arm).tuned_as or arm]
    if tuned.best is None:
        return None, f"{group.name} has {tuned.done} runs of {tuned.arm} and is not finished"
    return {**shared, **tuned.best.settings}, ""


def _results(study, part, walked, evaluate):
    values = {arm: values_of(study, walked, arm) for arm in part.arms}
    labelled = []
    for seed in part.seeds:
        for arm in part.arms:
            found, why = values[arm]
            if found is None:
                walked.waiting[part.name, arm] = why
                continue
            cell = study.cell(arm, seed, part.budget, found, part.changes, scale=part.scale)
            walked.cells.setdefault((part.name, arm), {})[seed] = cell
            labelled.append((arm, cell))
    rows = evaluate(part.name, labelled)
    for arm in part.arms:
        walked.rows[part.name, arm] = dict.fromkeys(part.seeds)
    for (arm, cell), row in zip(labelled, rows):
        walked.rows[part.name, arm][cell.seed] = row
