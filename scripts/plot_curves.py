#!/usr/bin/env python3
"""Draws the loss curves of one or more runs into a PNG: training loss, smoothed, and the validation points.

    scripts/plot_curves.py --output curves.png runs/adamw runs/m_plus_adam
    scripts/plot_curves.py --output curves.png "AdamW=runs/adamw" "M+Adam=runs/m_plus_adam"
"""

import argparse
import math
import os
import sys

from run_metrics import BadRun, Run


def smoothed(values, window):
    """Mean of the last `window` finite values; NaN where there is none, so that a gap stays a gap."""
    result = []
    for end in range(1, len(values) + 1):
        recent = [v for v in values[max(0, end - window):end] if math.isfinite(v)]
        result.append(sum(recent) / len(recent) if recent and math.isfinite(values[end - 1]) else math.nan)
    return result


def labelled_run(text):
    """LABEL=PATH, or PATH alone, which is labelled by its directory."""
    label, separator, path = text.partition("=")
    if separator and not os.path.exists(text):
        return label, Run(path)
    run = Run(text)
    return run.name, run


def draw(axes, label, run, window):
    steps, losses = run.series("loss")
    window = window or max(1, len(steps) // 50)
    faint = axes.plot(steps, losses, linewidth=0.6, alpha=0.25)[0]
    axes.plot(steps, smoothed(losses, window), color=faint.get_color(), linewidth=1.6, label=f"{label}, training")
    val_steps, val_losses = run.series("val_loss")
    if val_steps:
        axes.plot(val_steps, val_losses, "o--", color=faint.get_color(), markersize=4, linewidth=0.9,
                  label=f"{label}, validation {val_losses[-1]:.3f}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="[LABEL=]RUN", help="run directory or its metrics.jsonl")
    parser.add_argument("--output", required=True, help="PNG to write")
    parser.add_argument("--title", default="")
    parser.add_argument("--smooth", type=int, default=0, metavar="STEPS", help="window of the mean; default 2 %% of the steps")
    parser.add_argument("--line", action="append", default=[], metavar="LABEL=LOSS", help="a dotted line at a loss to compare with")
    return parser.parse_args()


def main():
    args = arguments()
    from pyplot import plt
    figure, axes = plt.subplots(figsize=(8, 5), dpi=120)
    for label, run in map(labelled_run, args.runs):
        draw(axes, label, run, args.smooth)
    for label, _, level in (line.rpartition("=") for line in args.line):
        axes.axhline(float(level), color="grey", linestyle=":", label=f"{label} {float(level):.3f}")
    axes.set(xlabel="step", ylabel="loss (nats per token)", title=args.title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(args.output)
    print(f"wrote {args.output}")


if __name__ == "__main__":
    try:
        main()
    except (BadRun, OSError, ValueError) as problem:
        sys.exit(f"plot_curves.py: error: {problem}")
