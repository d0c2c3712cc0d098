"""The page of a study's tuning: shared values, every point tried, what lies at an edge."""

import math
import statistics

from ..markdown import table
from .knobs import shown


class TuningPage:
    """Of Findings."""

    def __init__(self, findings):
        self.study, self.walked = findings.study, findings.walked

    def lines(self, figures):
        """Of Markdown; figures: [(part, line), ...]"""
        lines = [f"# Tuning of {self.study.title}", "", *self._warnings(), ""]
        for found in self.walked.shared:
            lines += [f"## {found.shared.name}", "", *self._shared(found), ""]
        for group in self.study.tuning:
            lines += [f"## {group.name}", "", *self._group(group), ""]
            lines += [line for name, text in figures if name == group.name for line in (text, "")]
            for arm in group.arms:
                lines += [f"### {self.study.arm(arm).label}", "", *self._arm(arm), ""]
        if not (self.study.tuning or self.study.shared):
            lines += ["Nothing is tuned."]
        return lines

    def _warnings(self):
        """Lines about arms whose best value lies at an edge, and about unequal numbers of runs."""
        lines = []
        for arm, tuned in self.walked.tuned.items():
            for key, side in tuned.edges.items():
                knob = next(knob for knob in tuned.knobs if knob.key == key)
                value = shown(tuned.best.point[key])
                times = len({wave for wave, moved, *_ in tuned.moved if moved == key})
                widened = f"widened {_times(times)}" if times else "not widened"
                if (knob.low if side == "low" else knob.high) == (
                    knob.least if side == "low" else knob.most
                ):
                    widened += ", this end is its limit"
                lines.append(
                    f"* **At an edge: {self.study.arm(arm).label}, {key} = {value}, the {side} end"
                    f" of {knob.described()} ({widened}).**"
                )
        for group in self.study.tuning:
            counts = {self.walked.tuned[arm].done for arm in group.arms}
            if len(counts) > 1:
                told = f"from {min(counts)} to {max(counts)}"
                lines.append(f"* **{group.name}: the arms have {told} runs so far.**")
        return lines or ["No tuned value lies at an edge, and arms of a group have as many runs."]

    def _shared(self, found):
        shared = found.shared
        rows = []
        for values, best in found.scores:
            losses = list(best.values())
            known = None not in losses
            mean = "not finished"
            if known:
                finite = all(map(math.isfinite, losses))
                mean = f"{statistics.fmean(losses):.4f}" if finite else "diverged"
            text = ", ".join(f"{key} = {shown(value)}" for key, value in values.items())
            chosen = "chosen" if values == found.chosen else ""
            rows.append([text, *(_loss(loss) for loss in losses), mean, chosen])
        labels = [self.study.arm(arm).label for arm in shared.arms]
        targets = ", ".join(self.study.arm(arm).label for arm in shared.targets)
        at = "; ".join(f"{key} in {', '.join(map(shown, v))}" for key, v in shared.at.items())
        return [
            *table(["values", *labels, "mean", ""], rows),
            "",
            f"Seed {shared.seed}, budget {shared.budget:g}"
            + (f", of each arm the best of {at}" if at else "")
            + f". Taken by: {targets}.",
        ]

    def _group(self, group):
        keys = list(dict.fromkeys(k.key for arm in group.arms for k in self.study.arm(arm).knobs))
        rows = []
        for arm in group.arms:
            tuned = self.walked.tuned[arm]
            best = tuned.best
            values = [shown(best.settings.get(key, "")) if best else "" for key in keys]
            loss = _loss(best.loss) if best else "not finished"
            edge = ", ".join(f"{key}: {side}" for key, side in tuned.edges.items())
            rows.append([self.study.arm(arm).label, tuned.done, *values, loss, edge])
        rungs = ", ".join(f"{_points(rung)} at budget {rung.budget:g}" for rung in group.rungs)
        widened = (
            f" Where the best point of the first rung lies within {group.edge:g} of an end of its"
            f" range, the range is widened by the factor {group.widen_factor:g}, at most"
            f" {_times(group.widen_times)}; every arm then tries {group.widen_points} points more."
            if group.widen_times
            else ""
        )
        return [
            *table(["arm", "runs", *keys, "loss", "at an edge"], rows),
            "",
            f"Sampler {group.sampler}, seed {group.seed}, which no result has: {rungs}.{widened}",
        ]

    def _arm(self, arm):
        tuned = self.walked.tuned[arm]
        keys = [knob.key for knob in self.study.arm(arm).knobs]
        ranges = (f"{knob.key} in {knob.described()}" for knob in self.study.arm(arm).knobs)
        lines = [f"Ranges: {'; '.join(ranges)}."]
        for wave, key, old, new in tuned.moved:
            lines.append(f"Widened, {wave}: {key} from {old.described()} to {new.described()}.")
        others = [other.label for other in self._taking(arm)]
        if others:
            lines.append(f"Also taken by {', '.join(others)}.")
        rows = [
            [
                trial.rung + 1,
                trial.wave or "",
                *(shown(trial.point[key]) for key in keys),
                _loss(trial.loss),
                "best" if trial is tuned.best else "",
            ]
            for trial in tuned.trials
        ]
        return [" ".join(lines), "", *table(["rung", "widened", *keys, "loss", ""], rows)]

    def _taking(self, arm):
        return [other for other in self.study.arms.by_name.values() if other.tuned_as == arm]


def _times(number):
    return "once" if number == 1 else f"{number} times"


def _points(rung):
    return f"{rung.keep} kept" if rung.keep else f"{rung.points or 'all'} points"


def _loss(loss):
    if loss is None:
        return "not run"
    return f"{loss:.4f}" if math.isfinite(loss) else "diverged"
