#!/usr/bin/env python3
"""The paper's scaling figure: perplexity over the length of training, AdamW and M+Adam in three regimes, at one size.

    scripts/reproduce/chinchilla_figure.py --scale pico --budget 8 --tokens data/tokens --work runs

Runs of 1, 2, 4 and 8 times 20 tokens a parameter, up to --budget (default: 8), the shortest first. Longer runs than the
shortest take only the first --seeds-beyond of --seeds.
"""

import math
import sys

from experiments import compare, style
from experiments.artefact import Artefact, budgets_up_to, exit_status, perplexity, spread
from experiments.rows import BY_KEY

ROWS = [BY_KEY[key] for key in ("bf16_adamw", "bf16_adamw_sr", "bf16", "bf16_fp8_adamw", "bf16_fp8", "fp8_adamw",
                                "fp8")]
PAIRS = [(BY_KEY[m_plus_adam], BY_KEY[adamw]) for adamw, m_plus_adam in
         (("bf16_adamw", "bf16"), ("bf16_fp8_adamw", "bf16_fp8"), ("fp8_adamw", "fp8"))]

FIGURE = "![Perplexity over training tokens](chinchilla_figure.png)"


def add_arguments(parser):
    parser.add_argument("--seeds-beyond", type=int, default=1, metavar="N",
                        help="seeds of the budgets above the smallest; default: 1")
    parser.set_defaults(budget=8)


def cells_of(artefact):
    """{(row, budget): [cell of each seed]}, cheapest budgets first."""
    budgets = budgets_up_to(artefact.args.budget)[:2 if artefact.args.quick else None]
    seeds = {budget: artefact.seeds if budget == budgets[0] else artefact.seeds[:artefact.args.seeds_beyond]
             for budget in budgets}
    return {(row, budget): [artefact.cell(row, seed, budget) for seed in seeds[budget]]
            for budget in budgets for row in ROWS}


def budgets_of(cells):
    return list(dict.fromkeys(budget for _, budget in cells))


def tables(losses):
    """Markdown lines from {(row, budget): {seed: loss}}: perplexities, and what M+Adam gains."""
    budgets = budgets_of(losses)
    ratios = [f"{budget:g}×" for budget in budgets]
    values = [[row.regime, row.optimizer, *(perplexity_and_loss(losses[row, budget]) for budget in budgets)]
              for row in ROWS]
    gaps = [[row.regime, *(gap(losses[row, budget], losses[adamw, budget]) for budget in budgets),
             persistence([losses[row, budget] for budget in budgets], [losses[adamw, budget] for budget in budgets])]
            for row, adamw in PAIRS]
    shares = f"share at {ratios[-1]} / at {ratios[0]}"
    return ["Validation perplexity (loss, and its standard deviation where there are several seeds) by multiples of 20 "
            "tokens a parameter:", "",
            *compare.table(["weights/compute", "optimizer", *ratios], values), "",
            "Gap of perplexity, AdamW - M+Adam, its share of AdamW's perplexity, and the standard error of that share:",
            "", *compare.table(["weights/compute", *ratios, shares], gaps), "", *verdict(losses)]


def perplexity_and_loss(losses):
    values = list(losses.values())
    return f"{perplexity(values)} ({spread(values)})" if perplexity(values) else spread(values)


def gap(losses, baseline):
    """AdamW's perplexity less M+Adam's, as text; "not run" where one is missing, "diverged" where one is that."""
    found = compare.difference(losses, baseline)
    if found is None:
        return "diverged" if any(map(math.isinf, [*losses.values(), *baseline.values()])) else "not run"
    of_adamw = math.exp(compare.mean_of_common(baseline, losses))
    error = "" if math.isnan(found.error) else f" ± {100 * math.exp(found.mean) * found.error:.2f}"
    return f"{of_adamw * found.reduction / 100:+.3f} ({found.reduction:.2f}{error} %)"


def persistence(losses, baselines):
    """The relative gap of the longest runs in multiples of that of the shortest, where that one is positive.

    Only seeds that both have count: a seed's luck is much of a gap.
    """
    seeds = set.intersection(*map(set, (losses[0], losses[-1], baselines[0], baselines[-1])))
    first, last = (compare.difference(_only(seeds, losses[at]), _only(seeds, baselines[at])) for at in (0, -1))
    if len(losses) < 2 or first is None or last is None or first.mean >= 0:
        return ""
    return f"{last.reduction / first.reduction:.2f}"


def _only(seeds, losses):
    return {seed: losses[seed] for seed in sorted(seeds)}


def verdict(losses):
    """The paper's claim, cell by cell."""
    compared = {(row, budget): found for row, adamw in PAIRS for budget in budgets_of(losses)
                if (found := compare.difference(losses[row, budget], losses[adamw, budget]))}
    if not compared:
        return []
    fails = [f"{row.regime} at {budget:g}×" for (row, budget), found in compared.items() if not found.is_below()]
    claim = "The paper's claim is that M+Adam is below AdamW everywhere and that the gap persists. Here it is below"
    return [compare.verdict(claim, list(compared.values()), "pairs that are finished")
            + (f" It is not in {', '.join(fails)}." if fails else "")]


def tuning(tuned, budgets):
    """Which hyperparameters the longer runs have: their own are under row@budget."""
    own = [f"{budget:g}×" for budget in budgets if any(f"{row.key}@{budget:g}" in tuned for row in ROWS)]
    here = f"Some hyperparameters were tuned again at {', '.join(own)}" if own else "Hyperparameters are those of 1×"
    return f"{here}; the paper tuned the sensitive ones again at each budget. It prints no values of this figure."


def records(artefact, cells):
    return [[row.regime, row.optimizer, budget, *compare.record(artefact, cell)]
            for (row, budget), of_seeds in cells.items() for cell in of_seeds]


def draw(losses, scale):
    """Perplexity over the ratio; None if nothing is finished."""
    budgets = budgets_of(losses)
    if not any(compare.finite_mean(found) for found in losses.values()):
        return None
    figure, axes = style.pyplot().subplots(figsize=(4.6, 3.8))
    for row in ROWS:
        points = [(budget, *bar) for budget in budgets if (bar := compare.perplexity_bar(losses[row, budget]))]
        if points:
            ratios, middle, below, above = zip(*points)
            axes.errorbar(ratios, middle, (below, above), label=f"{row.optimizer}, {row.regime}",
                          **style.optimizer(row.optimizer), **style.regime(row.regime))
    axes.set_xscale("log", base=2)
    axes.set_xticks(budgets, [f"{budget:g}" for budget in budgets])
    axes.minorticks_off()
    axes.set_xlabel("training tokens, multiples of 20 a parameter")
    axes.set_ylabel("validation perplexity")
    axes.set_title(scale)
    axes.legend(handlelength=3)
    return figure


def main(arguments=None):
    artefact = Artefact("chinchilla_figure", __doc__, arguments, add_arguments)
    cells = cells_of(artefact)
    in_order = [cell for of_seeds in cells.values() for cell in of_seeds]
    artefact.run(in_order)
    losses = {key: compare.losses_by_seed(artefact, of_seeds) for key, of_seeds in cells.items()}
    artefact.write_csv(["regime", "optimizer", "budget", *compare.RECORD], records(artefact, cells))
    lines = [FIGURE, "", *tables(losses), "", tuning(artefact.tuned, budgets_of(cells))]
    artefact.write_markdown("Perplexity over the length of training", lines, in_order)
    if figure := draw(losses, artefact.scale):
        artefact.write_figure(figure)
    return 1 if artefact.failed else 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
