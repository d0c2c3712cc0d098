#!/usr/bin/env python3
"""Draws what `mpretrain toy` recorded: loss curves of each regime and a sweep of learning rates.

    mpretrain toy --output toy
    scripts/plot_toy.py toy --curves curves.png --sweep sweep.png
    scripts/plot_toy.py toy --thin runs.csv      # only the rows that both figures need

Additive and multiplicative steps are drawn at the best rate of each regime, M+Adam at one rate for all of them.
"""

import argparse
import collections
import csv
import json
import math
import os
import statistics
import sys

LABELS = {"additive": "additive", "multiplicative": "multiplicative", "m_plus_adam": "M+Adam"}
# Additive steps in the colour that AdamW has in all figures, both in M+Adam's; told apart by colour-blind readers, too.
COLOURS = {"additive": "#0072B2", "multiplicative": "#7F7F7F", "m_plus_adam": "#D55E00"}


class Toy:
    """The runs of a directory, by (regime, rule, rate): {step: losses of the seeds}."""

    def __init__(self, directory):
        with open(os.path.join(directory, "summary.json"), encoding="utf-8") as file:
            self.summary = json.load(file)
        self.rows = []
        self.runs = collections.defaultdict(lambda: collections.defaultdict(list))
        with open(os.path.join(directory, "runs.csv"), encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                self.rows.append(row)
                self.runs[self.cell(row)][int(row["step"])].append(float(row["loss"]))
        self.last_step = self.summary["options"]["steps"]
        self.regimes = self.summary["options"]["regimes"]
        self.rules = self.summary["options"]["rules"]

    @staticmethod
    def cell(row):
        return row["regime"], row["rule"], float(row["rate"])

    def drawn_rate(self, regime, rule):
        """The rate whose curve is drawn; None if all diverged."""
        if rule == "m_plus_adam":
            return self.summary["shared_rate"]
        best = self.summary["regimes"][regime][rule]
        return best and best["rate"]

    def is_drawn(self, row):
        regime, rule, rate = self.cell(row)
        return rate == self.drawn_rate(regime, rule) or int(row["step"]) in (0, self.last_step)

    def curve(self, regime, rule, rate):
        """(steps, means over seeds)"""
        run = self.runs[regime, rule, rate]
        steps = sorted(run)
        return steps, [statistics.fmean(run[step]) for step in steps]

    def finals(self, regime, rule):
        """(rates, means over seeds at the end, NaN where a seed diverged)"""
        cells = sorted((rate, run) for (r, u, rate), run in self.runs.items() if (r, u) == (regime, rule))
        losses = [statistics.fmean(run[self.last_step]) for _, run in cells]
        return [rate for rate, _ in cells], [loss if math.isfinite(loss) else math.nan for loss in losses]


def power(rate):
    return f"$2^{{{math.log2(rate):.3g}}}$"


def panels(toy):
    from pyplot import plt
    figure, axes = plt.subplots(1, len(toy.regimes), figsize=(3.1 * len(toy.regimes), 3.2), dpi=120, squeeze=False)
    for i, (regime, panel) in enumerate(zip(toy.regimes, axes[0])):
        panel.set_title(f"({chr(ord('a') + i)}) {regime.replace('_', ' ')}", fontsize=10)
        panel.set_yscale("log")
        panel.grid(alpha=0.3)
    axes[0][0].set_ylabel("loss of all entries")
    return figure, dict(zip(toy.regimes, axes[0]))


def draw_curves(toy):
    """Figure of the loss over steps."""
    figure, axes = panels(toy)
    for regime, panel in axes.items():
        for rule in toy.rules:
            rate = toy.drawn_rate(regime, rule)
            if rate is None:
                continue
            style = "--" if rule == "m_plus_adam" else "-"
            panel.plot(*toy.curve(regime, rule, rate), style, color=COLOURS[rule], linewidth=1.5,
                       label=f"{LABELS[rule]}, {power(rate)}")
        panel.set_xlabel("step")
        panel.legend(fontsize=7)
    figure.tight_layout()
    return figure


def draw_sweep(toy):
    """Figure of the final loss over rates."""
    figure, axes = panels(toy)
    for regime, panel in axes.items():
        for rule in toy.rules:
            panel.plot(*toy.finals(regime, rule), ".-", color=COLOURS[rule], linewidth=1, markersize=4, label=LABELS[rule])
        if toy.summary["shared_rate"]:
            panel.axvline(toy.summary["shared_rate"], color="grey", linestyle=":", linewidth=1)
        panel.set_xscale("log", base=2)
        panel.set_xlabel("learning rate")
    next(iter(axes.values())).legend(fontsize=7)
    figure.tight_layout()
    return figure


def save(figure, path):
    figure.savefig(path)
    print(f"wrote {path}")


def write_thin(toy, path):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["regime", "rule", "rate", "seed", "step", "loss"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(filter(toy.is_drawn, toy.rows))
    print(f"wrote {path}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", help="what --output of `mpretrain toy` named")
    parser.add_argument("--curves", metavar="PNG", help="loss over steps")
    parser.add_argument("--sweep", metavar="PNG", help="final loss over rates")
    parser.add_argument("--thin", metavar="CSV", help="the rows of runs.csv that the figures need")
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


if __name__ == "__main__":
    try:
        main()
    except (OSError, KeyError, TypeError, ValueError) as problem:
        sys.exit(f"plot_toy.py: error: {problem}")
