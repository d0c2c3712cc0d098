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
        figure, axes = style.pyplot().subplots(figsize=(6.4, 4))
        for arm, points in curves.items():
            if points:
                label = self.study.arm(arm).label
                axes.plot(*zip(*points), label=label, markersize=3, **_line(self.look(arm)))
        axes.set_xlabel("step")
        axes.set_ylabel("training loss (nats per token), mean over seeds")
        axes.legend(ncols=1 + len(curves) // 9)
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
        """A panel a knob: every point tried, the later rungs larger."""
        keys = list(dict.fromkeys(k.key for arm in group.arms for k in self.study.arm(arm).knobs))
        trials = [t for arm in group.arms for t in self.walked.tuned[arm].trials]
        if not any(t.loss is not None and math.isfinite(t.loss) for t in trials):
            return None
        size = (2.6 * len(keys) + 1.2, 3.2)
        figure, panels = style.pyplot().subplots(
            1, len(keys), figsize=size, sharey=True, squeeze=False
        )
        for axes, key in zip(panels[0], keys):
            for arm in group.arms:
                self._panel(axes, key, arm, self.walked.tuned[arm])
            axes.set_xlabel(key.split(".")[-1])
        panels[0][0].set_ylabel("validation loss (nats per token)")
        handles = {}
        for axes in panels[0]:
            handles.update({label: one for one, label in zip(*axes.get_legend_handles_labels())})
        panels[0][-1].legend(
            handles.values(), handles.keys(), loc="upper left", bbox_to_anchor=(1, 1)
        )
        return figure

    def _panel(self, axes, key, arm, tuned):
        look = self.look(arm)
        knob = next((knob for knob in tuned.knobs if knob.key == key), None)
        label = self.study.arm(arm).label
        for rung in sorted({trial.rung for trial in tuned.trials}):
            points = [
                (trial.settings[key], trial.loss)
                for trial in tuned.trials
                if trial.rung == rung and key in trial.settings and _is_drawn(trial, key)
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


def _is_drawn(trial, key):
    value = trial.settings[key]
    return (
        trial.loss is not None
        and math.isfinite(trial.loss)
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
    )


def _plain(look):
    return {key: look[key] for key in ("color", "marker")}


def _line(look):
    return {key: look[key] for key in ("color", "marker", "linestyle") if key in look}
