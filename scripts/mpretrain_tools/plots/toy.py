"""Draws what `mpretrain toy` recorded: loss curves of each regime and a sweep of learning rates.

    mpretrain toy --output toy
    scripts/tools.py plot_toy toy --curves curves.png --sweep sweep.png
    scripts/tools.py plot_toy toy --thin spread.csv    # what both figures draw

Additive and multiplicative steps are drawn at the best rate of each regime, M+Adam at one rate for
all of them. Of several seeds lines are medians, bands reach from the least to the most; a cross at
the top stands where a seed diverged.
"""

import argparse
import collections
import csv
import json
import math
import os
import statistics

MISTAKES = (OSError, KeyError, TypeError, ValueError)

LABELS = {"additive": "additive", "multiplicative": "multiplicative", "m_plus_adam": "M+Adam"}
# Additive steps in the colour that AdamW has in all figures, both in M+Adam's; told apart by
# colour-blind readers, too.
COLOURS = {"additive": "#0072B2", "multiplicative": "#7F7F7F", "m_plus_adam": "#D55E00"}
LINES = {"additive": "-", "multiplicative": ":", "m_plus_adam": "--"}
COLUMNS = ("regime", "rule", "rate", "step", "seeds", "diverged", "least", "median", "most")


class Spread:
    """Of the losses of several seeds; a diverged one is more than any other."""

    def __init__(self, losses):
        found = [loss if math.isfinite(loss) else math.inf for loss in losses]
        self.seeds, self.diverged = len(found), sum(map(math.isinf, found))
        self.least, self.median, self.most = min(found), statistics.median(found), max(found)

    def columns(self):
        return [
            self.seeds,
            self.diverged,
            *(f"{value:.6g}" for value in (self.least, self.median, self.most)),
        ]


class Toy:
    """The runs of a directory, by (regime, rule, rate): {step: losses of the seeds}."""

    def __init__(self, directory):
        with open(os.path.join(directory, "summary.json"), encoding="utf-8") as file:
            self.summary = json.load(file)
        self.runs = collections.defaultdict(lambda: collections.defaultdict(list))
        with open(os.path.join(directory, "runs.csv"), encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                self.runs[self._cell(row)][int(row["step"])].append(float(row["loss"]))
        self.last_step = self.summary["options"]["steps"]
        self.regimes = self.summary["options"]["regimes"]
        self.rules = self.summary["options"]["rules"]

    @staticmethod
    def _cell(row):
        return row["regime"], row["rule"], float(row["rate"])

    def drawn_rate(self, regime, rule):
        """The rate whose curve is drawn; None if all diverged."""
        if rule == "m_plus_adam":
            return self.summary["shared_rate"]
        best = self.summary["regimes"][regime][rule]
        return best and best["rate"]

    def rates(self, regime, rule):
        return sorted(rate for r, u, rate in self.runs if (r, u) == (regime, rule))

    def losses(self, regime, rule, rate):
        """At the end, one a seed; NaN where it diverged. Nothing of a rate that was not tried."""
        return (
            self.runs[regime, rule, rate].get(self.last_step, [])
            if (regime, rule, rate) in self.runs
            else []
        )

    def curve(self, regime, rule, rate):
        """{step: Spread}"""
        run = self.runs[regime, rule, rate]
        return {step: Spread(run[step]) for step in sorted(run)}

    def finals(self, regime, rule):
        """{rate: Spread at the end}"""
        return {rate: Spread(self.losses(regime, rule, rate)) for rate in self.rates(regime, rule)}

    def spreads(self):
        """Lines of a CSV, as COLUMNS names them: what the figures draw."""
        for regime in self.regimes:
            for rule in self.rules:
                drawn = self.drawn_rate(regime, rule)
                for rate, found in self.finals(regime, rule).items():
                    curve = (
                        self.curve(regime, rule, rate) if rate == drawn else {self.last_step: found}
                    )
                    for step, spread in curve.items():
                        yield [regime, rule, rate, step, *spread.columns()]


def power(rate):
    return f"$2^{{{math.log2(rate):.3g}}}$"


def panels(toy):
    """A figure, {regime: axes}, and the axes that are left for the legend."""
    from .pyplot import plt

    rows = -(-(len(toy.regimes) + 1) // 3)
    figure, axes = plt.subplots(rows, 3, figsize=(9, 2.7 * rows), squeeze=False)
    axes = axes.flatten()
    for i, (regime, panel) in enumerate(zip(toy.regimes, axes)):
        panel.set_title(f"({chr(ord('a') + i)}) {regime.replace('_', ' ')}")
        panel.set_yscale("log")
        panel.grid(alpha=0.3)
        if i % 3 == 0:
            panel.set_ylabel("loss of all entries")
    for panel in axes[len(toy.regimes) :]:
        panel.set_axis_off()
    return figure, dict(zip(toy.regimes, axes)), axes[len(toy.regimes)]


def draw_spreads(panel, found, rule, label):
    """{place: Spread} as the line of medians in its band."""
    places = list(found)
    medians, least, most = (
        [value if math.isfinite(value) else math.nan for value in values]
        for values in zip(
            *((spread.median, spread.least, spread.most) for spread in found.values())
        )
    )
    panel.plot(places, medians, LINES[rule], color=COLOURS[rule], linewidth=1.5, label=label)
    panel.fill_between(places, least, most, color=COLOURS[rule], alpha=0.25, linewidth=0)


def name_lines(panel, seeds, more=()):
    """In a panel of its own: a legend among the curves would hide some."""
    from .pyplot import plt

    rules = [
        plt.Line2D([], [], color=COLOURS[rule], linestyle=LINES[rule], label=label)
        for rule, label in LABELS.items()
    ]
    several = [
        plt.Rectangle(
            (0, 0),
            1,
            1,
            color="black",
            alpha=0.25,
            linewidth=0,
            label=f"least to most of {seeds} seeds",
        )
    ]
    panel.legend(
        handles=[*rules, *(several if seeds > 1 else []), *more], loc="center", frameon=False
    )


def draw_curves(toy):
    """Figure of the loss over steps."""
    figure, axes, left = panels(toy)
    for regime, panel in axes.items():
        for rule in toy.rules:
            rate = toy.drawn_rate(regime, rule)
            if rate is not None:
                draw_spreads(panel, toy.curve(regime, rule, rate), rule, power(rate))
        panel.set_xlabel("step")
        panel.legend(fontsize=8, title="rate", title_fontsize=8)
    name_lines(left, toy.summary["options"]["seeds"])
    figure.tight_layout()
    return figure


def draw_sweep(toy):
    """Figure of the final loss over rates."""
    from .pyplot import plt

    figure, axes, left = panels(toy)
    cross = plt.Line2D(
        [], [], color="black", marker="x", linestyle="none", label="a seed or more diverged"
    )
    shared = plt.Line2D(
        [],
        [],
        color="grey",
        linestyle=(0, (1, 1)),
        linewidth=1,
        label="rate of M+Adam for all regimes",
    )
    for regime, panel in axes.items():
        for rule, height in zip(toy.rules, (0.97, 0.85, 0.91)):
            found = toy.finals(regime, rule)
            draw_spreads(panel, found, rule, LABELS[rule])
            off = [rate for rate, spread in found.items() if spread.diverged]
            panel.plot(
                off,
                [height] * len(off),
                "x",
                color=COLOURS[rule],
                markersize=4,
                transform=panel.get_xaxis_transform(),
            )
        if toy.summary["shared_rate"]:
            panel.axvline(
                toy.summary["shared_rate"], color="grey", linestyle=(0, (1, 1)), linewidth=1
            )
        low, high = panel.get_ylim()
        panel.set_ylim(low, high * (high / low) ** 0.2)  # room for the crosses
        panel.set_xscale("log", base=2)
        panel.set_xlabel("learning rate")
    name_lines(left, toy.summary["options"]["seeds"], (cross, shared))
    figure.tight_layout()
    return figure


def save(figure, path):
    figure.savefig(path)
    print(f"wrote {path}")


def write_thin(toy, path):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(toy.spreads())
    print(f"wrote {path}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("directory", help="output directory of `mpretrain toy`")
    parser.add_argument("--curves", metavar="PNG", help="loss over steps")
    parser.add_argument("--sweep", metavar="PNG", help="final loss over rates")
    parser.add_argument(
        "--thin", metavar="CSV", help="CSV of the medians and ranges drawn in the figures"
    )
    args = parser.parse_args()
    if not (args.curves or args.sweep or args.thin):
        parser.error("nothing to do: give --curves, --sweep or --thin")
    return args


def main():
    args = arguments()
    toy = Toy(args.directory)
    if args.curves:
        save(draw_curves(toy), args.curves)
    if args.sweep:
        save(draw_sweep(toy), args.sweep)
    if args.thin:
        write_thin(toy, args.thin)
