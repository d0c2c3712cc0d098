"""The paper's figure of sensitivity to learning rates: AdamW and M+Adam in BF16/BF16, rates around
the tuned ones.

    scripts/reproduce.py lr_sensitivity --scale pico --budget 0.25 --tokens data/tokens --work runs

Rates are the tuned ones times 2^k. AdamW has one; M+Adam's eta_a and eta_m are moved one at a time,
and both together by the same factor, as the paper pairs them.
"""

import itertools
import math
import statistics
from dataclasses import dataclass

from .. import markdown
from . import style
from .artefact import Artefact, by_seed, spread
from .rows import BY_KEY, Row

WITHIN = 0.05  # nats above a curve's best that count as as good

ETA_A, ETA_M = "optimizer.lr_additive", "optimizer.lr_multiplicative"


@dataclass(frozen=True)
class Curve:
    """A row and the rates of it that are moved together."""

    label: str
    row: Row
    keys: tuple
    look: tuple  # colour, marker, line


CURVES = (
    Curve("AdamW, lr", BY_KEY["bf16_adamw"], (ETA_A,), (style.BLUE, "o", "-")),
    Curve("M+Adam, η_a and η_m", BY_KEY["bf16"], (ETA_A, ETA_M), (style.VERMILLION, "s", "-")),
    Curve("M+Adam, η_a", BY_KEY["bf16"], (ETA_A,), (style.VERMILLION, "<", "--")),
    Curve("M+Adam, η_m", BY_KEY["bf16"], (ETA_M,), (style.VERMILLION, ">", ":")),
)


def add_arguments(parser):
    parser.add_argument(
        "--points",
        type=int,
        default=5,
        metavar="N",
        help=(
            "factors 2^k of each rate, k from -(N-1)/2 to (N-1)/2; N is odd; default: 5,"
            " that is 1/4 to 4"
        ),
    )


def indices(points):
    """k of the factors 2^k."""
    if points < 3 or points % 2 == 0:
        raise SystemExit(
            f"lr_sensitivity: error: --points {points}: expected an odd number from 3 on, for the"
            " tuned rate is in the middle"
        )
    return range(-(points // 2), points // 2 + 1)


def rates_of(cell, keys, index):
    """{key: rate}: those of the tuned cell times 2^index; nothing at 0, which is that cell
    itself.
    """
    return {key: cell.value(key) * 2.0**index for key in keys} if index else {}


def cells_of(artefact):
    """{(curve, index): [cell of each seed]}"""
    found = {}
    for curve in CURVES:
        for index in indices(artefact.args.points):
            changes = rates_of(artefact.cell(curve.row, artefact.seeds[0]), curve.keys, index)
            found[curve, index] = [
                artefact.cell(curve.row, seed, changes=changes) for seed in artefact.seeds
            ]
    return found


def mean_losses(losses, curve):
    """[(index, mean over seeds)] of what is finished, inf where one diverged."""
    return [
        (index, statistics.fmean(found.values()))
        for (other, index), found in losses.items()
        if other == curve and found
    ]


# --- how wide the region of good rates is


@dataclass(frozen=True)
class Width:
    """In powers of two; open at an end where the sweep ends while the loss is still good."""

    value: float
    open_ends: int

    def __str__(self):
        return f"{'at least ' if self.open_ends else ''}{self.value:.2f}"


def width(points, within=WITHIN):
    """Of the span around the best of [(index, loss)] in which the loss is at most `within` above
    it.

    Between points the loss is interpolated linearly in the index; towards a diverged point nothing
    is. None without a finite loss.
    """
    points = sorted(points)
    finite = [loss for _, loss in points if math.isfinite(loss)]
    if not finite:
        return None
    best = next(place for place, (_, loss) in enumerate(points) if loss == min(finite))
    upper, upper_open = reach(points[best:], min(finite) + within)
    lower, lower_open = reach(points[best::-1], min(finite) + within)
    return Width(upper - lower, upper_open + lower_open)


def reach(points, limit):
    """(index up to which the loss stays below the limit, whether it does so to the end), from the
    first point on.
    """
    for (here, loss), (there, next_loss) in itertools.pairwise(points):
        if next_loss > limit:
            share = (limit - loss) / (next_loss - loss) if math.isfinite(next_loss) else 0
            return here + share * (there - here), False
    return points[-1][0], True


# --- what is written


def tables(losses, tuned):
    """Markdown lines from {(curve, index): {seed: loss}} and {curve: {key: tuned rate}}."""
    found = list(dict.fromkeys(index for _, index in losses))
    rows = []
    for curve in CURVES:
        points = mean_losses(losses, curve)
        rates = ", ".join(f"{rate:g}" for rate in tuned[curve].values())
        rows.append(
            [
                curve.label,
                rates,
                *(spread(list(losses[curve, index].values())) for index in found),
                (width(points) or "") if len(points) == len(found) else "not run",
            ]
        )
    header = [
        "rates moved",
        "tuned",
        *(f"× {factor(index)}" for index in found),
        "width in powers of two",
    ]
    return [
        *markdown.table(header, rows),
        "",
        "Validation losses. The width is that of the span of factors around a curve's best in"
        " which its loss is "
        f'at most {WITHIN:g} nats above it, interpolated linearly between points; "at least" where'
        " the sweep "
        "ends before it does. The paper claims a stable region for M+Adam and prints no width.",
    ]


def factor(index):
    return f"{2**index:g}" if index >= 0 else f"1/{2**-index}"


def draw(losses, scale):
    """Loss over the factor, AdamW beside M+Adam; diverged points at the top edge. None if nothing
    finished.
    """
    finite = [
        loss for curve in CURVES for _, loss in mean_losses(losses, curve) if math.isfinite(loss)
    ]
    if not finite:
        return None
    figure, panels = style.pyplot().subplots(1, 2, figsize=(7.4, 3.6), sharey=True)
    for curve in CURVES:
        axes = panels[int(curve.row.optimizer == "M+Adam")]
        colour, marker, line = curve.look
        points = mean_losses(losses, curve)
        shown = [(index, loss if math.isfinite(loss) else math.nan) for index, loss in points]
        label = curve.label.replace("η_a", r"$\eta_a$").replace("η_m", r"$\eta_m$")
        axes.plot(
            *zip(*shown) if shown else ([], []),
            color=colour,
            marker=marker,
            linestyle=line,
            label=label,
        )
        style.mark_diverged(axes, [index for index, loss in points if math.isinf(loss)], colour)
    found = sorted({index for _, index in losses})
    for axes in panels:
        axes.axhspan(
            min(finite),
            min(finite) + WITHIN,
            color=style.GREY,
            alpha=0.2,
            linewidth=0,
            label=f"within {WITHIN:g} of the best of all",
        )
        axes.set_xticks(found, [factor(index) for index in found])
        axes.set_xlabel("learning rate, multiples of the tuned one")
        axes.legend(loc="upper center")
    panels[0].set_ylabel("validation loss (nats per token)")
    figure.suptitle(f"{scale}, BF16/BF16", fontsize="medium")
    return figure


def label(key, cell):
    curve, index = key
    return curve.label, index, cell.value(ETA_A), cell.value(ETA_M, "")


def main(arguments=None):
    artefact = Artefact("lr_sensitivity", __doc__, arguments, add_arguments)
    cells = cells_of(artefact)
    in_order = by_seed(cells)
    losses = artefact.losses(["curve", "index", "eta_a", "eta_m"], cells, label, in_order)
    tuned = {curve: {key: cells[curve, 0][0].value(key) for key in curve.keys} for curve in CURVES}
    return artefact.finish(
        "Sensitivity to learning rates",
        ["![Loss over learning rates](lr_sensitivity.png)", "", *tables(losses, tuned)],
        in_order,
        draw(losses, artefact.scale),
    )
