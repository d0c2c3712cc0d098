"""Figures of a study, from its ledger alone: losses by arm and seed, curves, and what tuning tried.
Left out, with a word, where matplotlib is not installed.
"""

import importlib.util
import math
import statistics
import sys

from ..reproduce import style
from ..reproduce.artefact import with_few_colours

KINDS = ("png", "pdf")  # of files
MOST = 7  # arms of a panel: as many as there are colours


def are_possible():
    if importlib.util.find_spec("matplotlib"):
        return True
    print(
        f"no figures: {sys.executable} has no matplotlib; install python3-matplotlib and use"
        " /usr/bin/python3",
        file=sys.stderr,
    )
    return False


class Figures:
    """Draws into a directory what Findings tell."""

    def __init__(self, findings, directory, kinds=KINDS):
        self.findings = findings
        self.study, self.walked = findings.study, findings.walked
        self.directory, self.kinds, self.written = directory, kinds, []

    def of_results(self):
        """[(part, Markdown line), ...]"""
        found = []
        for index, part in enumerate(self.study.results):
            for kind, draw in (("losses", self._losses), ("curves", self._curves)):
                if figure := draw(part):
                    name = f"{kind}_{index + 1}"
                    self._save(figure, name)
                    found.append((part.name, f"![{part.name}: {kind}]({name}.{self.kinds[0]})"))
        return found

    def of_tuning(self):
        found = []
        for index, group in enumerate(self.study.tuning):
            if figure := self._tuning(group):
                self._save(figure, f"tuning_{index + 1}")
                found.append(
                    (group.name, f"![{group.name}: losses](tuning_{index + 1}.{self.kinds[0]})")
                )
        return found

    def look(self, arm):
        given = {"color": None, "marker": None, **self.study.arm(arm).style}
        own = style.optimizer(self.study.arm(arm).label)
        return {**own, **{key: value for key, value in given.items() if value is not None}}

    def looks(self, arms, keys):
        """{arm: its look} in one panel: the study's, unless two arms would look alike by these
        keys; then colours and markers by their place in the panel.
        """
        found = {arm: self.look(arm) for arm in arms}
        seen = {tuple(str(look.get(key)) for key in keys) for look in found.values()}
        if len(seen) == len(found):
            return found
        return {
            arm: {**look, **dict(zip(("color", "marker"), style.CYCLE[place]))}
            for place, (arm, look) in enumerate(found.items())
        }

    def _save(self, figure, name):
        for kind in self.kinds:
            path = self.directory / f"{name}.{kind}"
            when = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)
            figure.savefig(path, dpi=120, bbox_inches="tight", metadata=when)
            if kind == "png":
                with_few_colours(path)
            self.written.append(path)
        style.pyplot().close(figure)

    # --- results

    def _losses(self, part):
        """A row an arm: its seeds as dots, their mean as the marker."""
        losses = {arm: self.findings.losses(part.name, arm) for arm in part.arms}
        if not any(losses.values()):
            return None
        figure, axes = style.pyplot().subplots(figsize=(6.4, 0.32 * len(losses) + 0.9))
        for place, (arm, found) in enumerate(losses.items()):
            look = self.look(arm)
            finite = [loss for loss in found.values() if math.isfinite(loss)]
            axes.plot(finite, [place] * len(finite), ".", color=look["color"], markersize=4)
            if finite:
                mean = statistics.fmean(finite)
                deviation = statistics.stdev(finite) if len(finite) > 1 else 0
                axes.errorbar(mean, place, xerr=deviation, linestyle="none", **_plain(look))
            if len(finite) < len(found):
                axes.plot(
                    0.98, place, "x", color=look["color"], transform=axes.get_yaxis_transform()
                )
        axes.set_yticks(range(len(losses)), [self.study.arm(arm).label for arm in losses])
        axes.invert_yaxis()
        axes.set_xlabel("validation loss (nats per token); × diverged")
        return figure

    def _curves(self, part):
        """Training loss over steps, the mean over seeds."""
        curves = {arm: self._mean_curve(part.name, arm) for arm in part.arms}
        if not any(curves.values()):
            return None
        shares = list(_shares([arm for arm, points in curves.items() if points]))
        figure, panels = style.pyplot().subplots(
            len(shares),
            1,
            figsize=(7.4, 3.2 * len(shares)),
            sharex=True,
            sharey=True,
            squeeze=False,
        )
        for axes, arms in zip(panels[:, 0], shares):
            looks = self.looks(arms, ("color", "marker", "linestyle"))
            for arm in arms:
                label = self.study.arm(arm).label
                axes.plot(*zip(*curves[arm]), label=label, markersize=3, **_line(looks[arm]))
            axes.set_ylabel("training loss (nats per token)")
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        panels[-1, 0].set_xlabel("step; mean over seeds")
        return figure

    def _mean_curve(self, part, arm):
        """[(step, loss), ...] over the seeds that did not diverge."""
        rows = [row for row in self.walked.rows[part, arm].values() if row]
        points = [row.points for row in rows if row.state == "finished"]
        if not points:
            return []
        steps = [step for step in points[0]["step"] if all(step in p["step"] for p in points)]
        return [
            (step, statistics.fmean(p["train"][p["step"].index(step)] for p in points))
            for step in steps
        ]

    # --- tuning

    def _tuning(self, group):
        """A row for a few arms with the same knobs, a panel a knob: every point tried, the later
        rungs larger.
        """
        arms = [arm for arm in group.arms if any(map(_is_finite, self.walked.tuned[arm].trials))]
        rows = [
            (keys, share)
            for keys in dict.fromkeys(map(self._keys, arms))
            for share in _shares([arm for arm in arms if self._keys(arm) == keys])
        ]
        if not rows:
            return None
        columns = max(len(keys) for keys, _ in rows)
        figure, panels = style.pyplot().subplots(
            len(rows),
            columns,
            figsize=(2.8 * columns + 1.8, 2.6 * len(rows) + 0.4),
            sharey=True,
            squeeze=False,
        )
        for of_row, (keys, share) in zip(panels, rows):
            self._row(of_row, keys, share)
        return figure

    def _keys(self, arm):
        return tuple(knob.key for knob in self.study.arm(arm).knobs)

    def _row(self, panels, keys, arms):
        looks = self.looks(arms, ("color", "marker"))
        for axes, key in zip(panels, keys):
            for arm in arms:
                self._panel(axes, key, arm, looks[arm])
            axes.set_xlabel(key.split(".")[-1])
        panels[0].set_ylabel("validation loss")
        panels[len(keys) - 1].legend(loc="upper left", bbox_to_anchor=(1, 1))
        for axes in panels[len(keys) :]:
            axes.set_axis_off()

    def _panel(self, axes, key, arm, look):
        tuned = self.walked.tuned[arm]
        knob = next((knob for knob in tuned.knobs if knob.key == key), None)
        label = self.study.arm(arm).label
        for rung in sorted({trial.rung for trial in tuned.trials}):
            points = [
                (trial.settings[key], trial.loss)
                for trial in tuned.trials
                if trial.rung == rung and _is_finite(trial) and _is_number(trial.settings[key])
            ]
            if points:
                axes.plot(
                    *zip(*points),
                    linestyle="none",
                    color=look["color"],
                    marker=look["marker"],
                    markersize=3 + 2 * rung,
                    alpha=0.5 if rung == 0 else 1,
                    label=label if rung == 0 else None,
                )
        if knob and not knob.values and knob.scale == "log":
            axes.set_xscale("log")


def _is_finite(trial):
    return trial.loss is not None and math.isfinite(trial.loss)


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shares(arms):
    """Of as many as can be told apart in a panel."""
    for first in range(0, len(arms), MOST):
        yield arms[first : first + MOST]


def _plain(look):
    return {key: look[key] for key in ("color", "marker")}


def _line(look):
    return {key: look[key] for key in ("color", "marker", "linestyle") if key in look}
