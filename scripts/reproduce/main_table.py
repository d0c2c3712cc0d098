#!/usr/bin/env python3
"""The paper's main table: every weight format and optimizer at one size, over several seeds.

    scripts/reproduce/main_table.py --scale pico --tokens data/tokens --work runs --output docs/results/pico

--extra adds what the paper leaves open: M+Adam with Kahan or stochastic rounding, and other policies of block scales.
"""

import math
import sys

from experiments import compare, style
from experiments.artefact import Artefact, exit_status, perplexity, spread
from experiments.rows import EXTRA, MAIN, SIZES, paper_size


def add_arguments(parser):
    parser.add_argument("--extra", action="store_true", help="rows that the paper does not have")


def cells_of(artefact):
    """{row: [cell of each seed]}, regime by regime."""
    rows = MAIN + (EXTRA if artefact.args.extra else ())
    regimes = [row.regime for row in rows]
    in_order = sorted(rows, key=lambda row: regimes.index(row.regime))
    return {row: [artefact.cell(row, seed) for seed in artefact.seeds] for row in in_order}


def baseline(row, of):
    """What `of` has under AdamW of the row's regime; None for that row itself."""
    adamw = [other for other in of if other.optimizer == "AdamW" and other.regime == row.regime and other != row]
    return of[adamw[0]] if adamw else None


def paper_entries(row, rows, column):
    """Perplexity and its reduction to AdamW, as the paper prints them."""
    if not row.paper:
        return ["", ""]
    other = baseline(row, {other: other.paper for other in rows})
    reduction = compare.percent(compare.paper_reduction(row.paper[column], other[column])) if other else ""
    return [f"{row.paper[column]:.3f}", reduction]


def table(artefact, cells):
    """Markdown lines."""
    losses = {row: compare.losses_by_seed(artefact, cells[row]) for row in cells}
    size = paper_size(artefact.scale)
    header = ["weights/compute", "optimizer", "validation loss", "seeds", "perplexity", "loss against AdamW",
              "perplexity reduction", f"paper, {size.upper()}", "paper's reduction"]
    lines = []
    for row in cells:
        values = list(losses[row].values())
        other = baseline(row, losses)
        against = compare.difference(losses[row], other) if other is not None else None
        lines.append([row.regime, row.optimizer, spread(values), len(values), perplexity(values), against or "",
                      compare.percent(against.reduction) if against else "",
                      *paper_entries(row, cells, SIZES.index(size))])
    family = [family_losses(artefact, cells[row]) for row in cells]
    if any(family):
        lines = [line[:3] + [spread(values)] + line[3:] for line, values in zip(lines, family)]
        header.insert(3, "averaged as the family does")
    return compare.table(header, lines) + ["", *remarks(cells, losses)]


def family_losses(artefact, cells):
    """Losses of the compatibility column, where the program reported it."""
    results = [artefact.result(cell) for cell in cells]
    return [result.val_loss_family for result in results if result and not math.isnan(result.val_loss_family)]


def remarks(cells, losses):
    """What the numbers mean, and how many regimes show what the paper claims."""
    compared = [found for row in cells if row.optimizer == "M+Adam" and row in MAIN
                and (found := compare.difference(losses[row], baseline(row, losses)))]
    compute = cells[MAIN[0]][0].value("precision.compute")
    lines = ["± is the standard deviation over seeds, of a difference the standard error of its mean over pairs of the "
             f"same seed. Perplexity is exp of the mean loss. FP32/TF32 was computed in {compute.upper()}."]
    return lines + (["", compare.verdict("M+Adam is below AdamW", compared, "regimes")] if compared else [])


def records(artefact, cells):
    return [[row.regime, row.optimizer, row.key, *compare.record(artefact, cell)]
            for row in cells for cell in cells[row]]


def draw(artefact, cells):
    """Mean losses with their deviations, regimes side by side; None if nothing is finished."""
    regimes = list(dict.fromkeys(row.regime for row in cells))
    points = {row: mean for row in cells if (mean := compare.finite_mean(compare.losses_by_seed(artefact, cells[row])))}
    if not points:
        return None
    figure, axes = style.pyplot().subplots(figsize=(1.4 * len(regimes) + 0.6, 3.4))
    for row, (mean, deviation) in points.items():
        beside = [other for other in cells if other.regime == row.regime]
        place = regimes.index(row.regime) + 0.14 * (beside.index(row) - (len(beside) - 1) / 2)
        axes.errorbar(place, mean, deviation, linestyle="none", label=row.optimizer, **style.optimizer(row.optimizer))
    handles = {label: handle for handle, label in zip(*axes.get_legend_handles_labels())}
    axes.legend(handles.values(), handles.keys())
    axes.set_xticks(range(len(regimes)), [regime.replace(", ", "\n") for regime in regimes])
    axes.set_xlim(-0.5, len(regimes) - 0.5)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("weights / compute")
    axes.set_ylabel("validation loss (nats per token)")
    return figure


def main(arguments=None):
    artefact = Artefact("main_table", __doc__, arguments, add_arguments)
    cells = cells_of(artefact)
    by_seed = [cell for of_one_seed in zip(*cells.values()) for cell in of_one_seed]
    artefact.run(by_seed)
    artefact.write_csv(["regime", "optimizer", "row", *compare.RECORD], records(artefact, cells))
    figure = "![Validation losses](main_table.png)"
    artefact.write_markdown("Main table", [*table(artefact, cells), "", figure], by_seed)
    if figure := draw(artefact, cells):
        artefact.write_figure(figure)
    return 1 if artefact.failed else 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
