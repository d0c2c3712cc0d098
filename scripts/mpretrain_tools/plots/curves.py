"""Draws the loss curves of one or more runs into a PNG, SVG or PDF: training loss, smoothed, and
the validation points, of each set that has a name.

    scripts/plot_curves.py --output curves.png runs/adamw runs/m_plus_adam
    scripts/plot_curves.py --output curves.png --x seconds AdamW=runs/adamw M+Adam=runs/m_plus_adam

The window of the mean is centred on the step, so that the curve does not lag behind what it
smooths; at both ends it is cut off. A run without a step is named and left out.
"""

import argparse
import itertools
import math

from ..runs.metrics import AXES, labelled_runs

# Sums are of whole numbers of 1/UNIT: exact, so that what leaves the window leaves nothing behind.
UNIT = 1 << 40

MARKERS = "os^vD"  # of the points of each validation set


def in_units(value):
    whole = int(value)
    return whole * UNIT + round((value - whole) * UNIT)


def smoothed(values, window):
    """Mean of the finite values among the `window` around each, one more if that is even, or as
    many as there are; NaN where a value is not finite, so that a gap stays a gap.
    """
    finite = [math.isfinite(value) for value in values]
    sums = list(
        itertools.accumulate((in_units(v) if f else 0 for v, f in zip(values, finite)), initial=0)
    )
    counts = list(itertools.accumulate(finite, initial=0))
    result = []
    for i in range(len(values)):
        first, last = max(0, i - window // 2), min(len(values), i + window // 2 + 1)
        result.append(
            (sums[last] - sums[first]) / UNIT / (counts[last] - counts[first])
            if finite[i]
            else math.nan
        )
    return result


def draw(axes, label, run, axis, window):
    places, losses = run.curve("loss", axis)
    window = window or max(1, len(places) // 50)
    faint = axes.plot(places, losses, linewidth=0.6, alpha=0.25)[0]
    axes.plot(
        places,
        smoothed(losses, window),
        color=faint.get_color(),
        linewidth=1.6,
        label=f"{label}, training",
    )
    names = run.validation_sets()
    curves = [(f" on {name}", ("validation", name, "loss")) for name in names] or [("", "val_loss")]
    for (which, key), marker in zip(curves, itertools.cycle(MARKERS)):
        val_places, val_losses = run.curve(key, axis)
        if val_places:
            axes.plot(
                val_places,
                val_losses,
                f"{marker}--",
                color=faint.get_color(),
                markersize=4,
                linewidth=0.9,
                label=f"{label}, validation{which} {val_losses[-1]:.3f}",
            )


def steps(text):
    """A number of steps, of an argument."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}': expected a whole number of steps, at least 1")
    return int(text)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "runs", nargs="+", metavar="[LABEL=]RUN", help="run directory or its metrics.jsonl"
    )
    parser.add_argument("--output", required=True, help="picture to write: .png, .svg or .pdf")
    parser.add_argument("--title", default="")
    parser.add_argument(
        "--x", choices=AXES, default="step", help="x axis of the losses; default: %(default)s"
    )
    parser.add_argument(
        "--smooth",
        type=steps,
        metavar="STEPS",
        help="window of the running mean; default: 2 %% of the steps",
    )
    parser.add_argument(
        "--line",
        action="append",
        default=[],
        metavar="LABEL=LOSS",
        help="draw a dotted line at this loss for comparison",
    )
    return parser.parse_args()


def main():
    args = arguments()
    from .pyplot import plt

    runs = labelled_runs(args.runs)
    figure, axes = plt.subplots(figsize=(8, 5), dpi=120)
    for label, run in runs:
        draw(axes, label, run, args.x, args.smooth)
    for label, _, level in (line.rpartition("=") for line in args.line):
        axes.axhline(float(level), color="grey", linestyle=":", label=f"{label} {float(level):.3f}")
    axes.set(xlabel=AXES[args.x], ylabel="loss (nats per token)", title=args.title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(args.output)
    print(f"wrote {args.output}")
