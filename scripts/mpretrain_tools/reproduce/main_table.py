"""The paper's main table: every weight format and optimizer at one size, over several seeds.

    scripts/reproduce.py main_table --tokens data/tokens --work runs --output docs/results/pico

--extra adds what the paper leaves open: M+Adam with Kahan or stochastic rounding, and other
policies of block scales.
"""

import math

from .. import markdown
from . import compare, style
from .artefact import Artefact, by_seed, perplexity, spread
from .rows import BY_KEY, EXTRA, MAIN, SIZES, paper_size


def add_arguments(parser):
    parser.add_argument(
        "--extra", action="store_true", help="also make rows that the paper does not have"
    )


def cells_of(artefact):
    """{row: [cell of each seed]}, regime by regime."""
    rows = MAIN + (EXTRA if artefact.args.extra else ())
    regimes = [row.regime for row in rows]
    in_order = sorted(rows, key=lambda row: regimes.index(row.regime))
    return {row: [artefact.cell(row, seed) for seed in artefact.seeds] for row in in_order}


def baseline(row, of):
    """What `of` has under AdamW of the row's regime; None for that row itself."""
    adamw = [
        other
        for other in of
        if other.optimizer == "AdamW" and other.regime == row.regime and other != row
    ]
    return of[adamw[0]] if adamw else None


def paper_entries(row, rows, column):
    """Perplexity and its reduction to AdamW, as the paper prints them."""
    if not row.paper:
        return ["", ""]
    other = baseline(row, {other: other.paper for other in rows})
    reduction = (
        compare.percent(compare.paper_reduction(row.paper[column], other[column])) if other else ""
    )
    return [f"{row.paper[column]:.3f}", reduction]


def table(artefact, cells, losses):
    """Markdown lines: losses beside the paper's perplexities."""
    size = paper_size(artefact.scale)
    header = [
        "weights/compute",
        "optimizer",
        "validation loss",
        "seeds",
        "perplexity",
        "reduction against AdamW",
        f"paper, {size.upper()}",
        "paper's reduction",
    ]
    lines = []
    for row in cells:
        values = list(losses[row].values())
        other = baseline(row, losses)
        against = compare.difference(losses[row], other) if other is not None else None
        lines.append(
            [
                row.regime,
                row.optimizer,
                spread(values),
                len(values),
                perplexity(values),
                reduction(against),
                *paper_entries(row, cells, SIZES.index(size)),
            ]
        )
    family = [family_losses(artefact, cells[row]) for row in cells]
    if any(family):
        lines = [[*line[:3], spread(values), *line[3:]] for line, values in zip(lines, family)]
        header.insert(3, "averaged as the family does")
    compute = cells[MAIN[0]][0].value("precision.compute")
    return [
        *markdown.table(header, lines),
        "",
        "± is the standard deviation over seeds. Perplexity is exp of the mean loss, its"
        " reduction that of pairs of the same seed. FP32/TF32 was computed in"
        f" {compute.upper()}.",
    ]


def reduction(found):
    return compare.percent(found.reduction) if found and found.reduction is not None else ""


def family_losses(artefact, cells):
    """Losses of the compatibility column, where the program reported it."""
    results = [artefact.result(cell) for cell in cells]
    return [
        result.val_loss_family
        for result in results
        if result and not math.isnan(result.val_loss_family)
    ]


IN_BF16 = (
    "fp32_adamw",
    "bf16_adamw_kahan",
    "bf16_adamw_sr",
)  # what M+Adam in BF16/BF16 has to be held against, too


def comparisons(cells, losses):
    """Markdown lines: tests of what the paper claims, regime by regime, and of M+Adam in BF16
    against what needs no M+Adam.
    """
    claimed = against_adamw(losses, lambda row: row.optimizer == "M+Adam")
    others = against_adamw(losses, lambda row: row.optimizer not in ("AdamW", "M+Adam"))
    in_bf16 = {
        (BY_KEY[key].label,): compare.difference(losses[BY_KEY["bf16"]], losses[BY_KEY[key]])
        for key in IN_BF16
    }
    regimes = {
        row.regime: found
        for row in cells
        if row in MAIN and (found := claimed.get((row.regime, row.optimizer)))
    }
    return [
        *([compare.verdict("M+Adam is below AdamW", regimes, "regimes"), ""] if regimes else []),
        "M+Adam against AdamW of the same regime:",
        "",
        *compare.tested_table(["weights/compute", "optimizer"], claimed),
        "",
        compare.HOW,
        "",
        "The other rows against AdamW of the same regime:",
        "",
        *compare.tested_table(["weights/compute", "optimizer"], others),
        "",
        "M+Adam in BF16/BF16 against:",
        "",
        *compare.tested_table(["row"], in_bf16),
    ]


def against_adamw(losses, chosen):
    """{(regime, optimizer): Difference or None} of the chosen rows."""
    return {
        (row.regime, row.optimizer): compare.difference(losses[row], baseline(row, losses))
        for row in losses
        if chosen(row) and baseline(row, losses) is not None
    }


def draw(losses):
    """Every seed's loss as a dot beside the mean and its deviation, regimes side by side; None if
    nothing is finished.

    A row with a diverged seed has no mean but a cross at the top edge.
    """
    regimes = list(dict.fromkeys(row.regime for row in losses))
    if not any(losses.values()):
        return None
    figure, axes = style.pyplot().subplots(figsize=(1.4 * len(regimes) + 0.6, 3.4))
    for row, found in losses.items():
        beside = [other for other in losses if other.regime == row.regime]
        place = regimes.index(row.regime) + 0.18 * (beside.index(row) - (len(beside) - 1) / 2)
        look = style.optimizer(row.optimizer)
        if mean := compare.finite_mean(found):
            axes.errorbar(place, *mean, linestyle="none", label=row.optimizer, **look)
        seeds = compare.finite(found)
        axes.plot(
            [place + 0.06] * len(seeds), seeds, ".", color=look["color"], markersize=3.5, alpha=0.8
        )
        style.mark_diverged(axes, [place] if len(seeds) < len(found) else [], look["color"])
    handles = {label: handle for handle, label in zip(*axes.get_legend_handles_labels())}
    axes.legend(handles.values(), handles.keys())
    axes.set_xticks(range(len(regimes)), [regime.replace(", ", "\n") for regime in regimes])
    axes.set_xlim(-0.5, len(regimes) - 0.5)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("weights / compute")
    axes.set_ylabel("validation loss (nats per token)")
    return figure


HEADER = ("regime", "optimizer", "row")


def label(row, _):
    return row.regime, row.optimizer, row.key


def main(arguments=None):
    artefact = Artefact("main_table", __doc__, arguments, add_arguments)
    cells = cells_of(artefact)
    in_order = by_seed(cells)
    losses = artefact.losses(HEADER, cells, label, in_order)
    figure = "![Validation losses; small dots are single seeds](main_table.png)"
    lines = [*table(artefact, cells, losses), "", *comparisons(cells, losses), "", figure]
    return artefact.finish("Main table", lines, in_order, draw(losses))
