"""The paper's scaling figure: perplexity over the length of training, AdamW and M+Adam in three
regimes, at one size.

    scripts/reproduce.py chinchilla_figure --scale pico --budget 8 --tokens data/tokens --work runs

Runs of 1, 2, 4 and 8 times 20 tokens a parameter, up to --budget (default: 8), the shortest first.
Longer runs than the shortest take only the first --seeds-beyond of --seeds.
"""

import math

from .. import markdown
from . import compare, style
from .artefact import Artefact, budgets_up_to, perplexity, spread
from .rows import BY_KEY

ROWS = [
    BY_KEY[key]
    for key in (
        "bf16_adamw",
        "bf16_adamw_sr",
        "bf16",
        "bf16_fp8_adamw",
        "bf16_fp8",
        "fp8_adamw",
        "fp8",
    )
]
PAIRS = [
    (BY_KEY[m_plus_adam], BY_KEY[adamw])
    for adamw, m_plus_adam in (
        ("bf16_adamw", "bf16"),
        ("bf16_fp8_adamw", "bf16_fp8"),
        ("fp8_adamw", "fp8"),
    )
]
ROUNDED = (
    BY_KEY["bf16"],
    BY_KEY["bf16_adamw_sr"],
)  # the paper has M+Adam below AdamW with stochastic rounding, too

FIGURE = "![Perplexity over training tokens](chinchilla_figure.png)"


def add_arguments(parser):
    parser.add_argument(
        "--seeds-beyond",
        type=int,
        default=1,
        metavar="N",
        help="number of seeds for budgets above the smallest; default: 1",
    )
    parser.set_defaults(budget=8)


def cells_of(artefact):
    """{(row, budget): [cell of each seed]}, cheapest budgets first."""
    budgets = budgets_up_to(artefact.args.budget)[: 2 if artefact.args.quick else None]
    seeds = {
        budget: (
            artefact.seeds if budget == budgets[0] else artefact.seeds[: artefact.args.seeds_beyond]
        )
        for budget in budgets
    }
    return {
        (row, budget): [artefact.cell(row, seed, budget) for seed in seeds[budget]]
        for budget in budgets
        for row in ROWS
    }


def budgets_of(cells):
    return list(dict.fromkeys(budget for _, budget in cells))


def tables(losses):
    """Markdown lines from {(row, budget): {seed: loss}}: perplexities, and what M+Adam gains."""
    budgets = budgets_of(losses)
    ratios = [f"{budget:g}×" for budget in budgets]
    values = [
        [
            row.regime,
            row.optimizer,
            *(perplexity_and_loss(losses[row, budget]) for budget in budgets),
        ]
        for row in ROWS
    ]
    gaps = [
        [
            row.regime,
            *(gap(losses[row, budget], losses[adamw, budget]) for budget in budgets),
            persistence(
                [losses[row, budget] for budget in budgets],
                [losses[adamw, budget] for budget in budgets],
            ),
        ]
        for row, adamw in PAIRS
    ]
    shares = f"share at {ratios[-1]} / at {ratios[0]}"
    return [
        (
            "Validation perplexity (loss, and its standard deviation where there are several seeds)"
            " by multiples of 20 tokens a parameter:"
        ),
        "",
        *markdown.table(["weights/compute", "optimizer", *ratios], values),
        "",
        "Gap of perplexity, AdamW - M+Adam, and its share of AdamW's perplexity:",
        "",
        *markdown.table(["weights/compute", *ratios, shares], gaps),
        "",
        "Loss of M+Adam against that of another row:",
        "",
        *compare.tested_table(["weights/compute", "against", "length"], differences(losses)),
        "",
        compare.HOW,
        "",
        *verdict(losses),
    ]


def differences(losses, pairs=(*PAIRS, ROUNDED)):
    """{(regime, other optimizer, length): Difference or None}"""
    return {
        (row.regime, other.optimizer, f"{budget:g}×"): compare.difference(
            losses[row, budget], losses[other, budget]
        )
        for row, other in pairs
        for budget in budgets_of(losses)
    }


def perplexity_and_loss(losses):
    values = list(losses.values())
    return f"{perplexity(values)} ({spread(values)})" if perplexity(values) else spread(values)


def gap(losses, baseline):
    """AdamW's perplexity less M+Adam's, as text; "not run" where one is missing, "diverged" where
    one is that.
    """
    found = compare.difference(losses, baseline)
    if found is None:
        return "not run"
    if found.reduction is None:
        return "diverged"
    of_adamw = math.exp(compare.mean_of_common(baseline, losses))
    return f"{of_adamw * found.reduction / 100:+.3f} ({found.reduction:.2f} %)"


def persistence(losses, baselines):
    """The relative gap of the longest runs in multiples of that of the shortest, where that one is
    positive.

    Only seeds that both have count: a seed's luck is much of a gap.
    """
    seeds = set.intersection(*map(set, (losses[0], losses[-1], baselines[0], baselines[-1])))
    first, last = (
        compare.difference(_only(seeds, losses[at]), _only(seeds, baselines[at])) for at in (0, -1)
    )
    if (
        len(losses) < 2
        or None in (first, last)
        or None in (first.reduction, last.reduction)
        or first.mean >= 0
    ):
        return ""
    return f"{last.reduction / first.reduction:.2f}"


def _only(seeds, losses):
    return {seed: losses[seed] for seed in sorted(seeds)}


def verdict(losses):
    """The paper's claims, cell by cell."""
    adamw = verdict_of(
        differences(losses, PAIRS),
        "pairs with AdamW",
        "The paper's claim is that M+Adam is below AdamW everywhere and that the gap persists. Here"
        " it is below",
    )
    rounded = verdict_of(
        differences(losses, [ROUNDED]),
        "pairs with AdamW + SR",
        "The same is claimed of AdamW + SR. Here M+Adam is below it",
    )
    return [*adamw, *([""] if adamw and rounded else []), *rounded]


def verdict_of(compared, of_what, claim):
    compared = {f"{label[0]} at {label[2]}": found for label, found in compared.items() if found}
    if not compared:
        return []
    fails = [label for label, found in compared.items() if not found.is_below()]
    return [
        compare.verdict(claim, compared, of_what)
        + (f" It is not in {', '.join(fails)}." if fails else "")
    ]


def tuning(tuned, budgets):
    """Which hyperparameters the longer runs have: their own are under row@budget."""
    own = [
        f"{budget:g}×"
        for budget in budgets
        if any(f"{row.key}@{budget:g}" in tuned for row in ROWS)
    ]
    here = (
        f"Some hyperparameters were tuned again at {', '.join(own)}"
        if own
        else "Hyperparameters are those of 1×"
    )
    return (
        f"{here}; the paper tuned the sensitive ones again at each budget. It prints no values of"
        " this figure."
    )


def draw(losses, scale):
    """Perplexity over the length, and beside it what M+Adam gains or loses; None if nothing is
    finished.
    """
    budgets = budgets_of(losses)
    if not any(losses.values()):
        return None
    figure, (values, gaps) = style.pyplot().subplots(1, 2, figsize=(9, 3.9))
    for number, row in enumerate(ROWS):
        draw_row(
            values,
            row,
            {budget: losses[row, budget] for budget in budgets},
            1.02 ** (number - (len(ROWS) - 1) / 2),
        )
    for number, (row, other) in enumerate((*PAIRS, ROUNDED)):
        draw_gap(gaps, (row, other), losses, 1.02 ** (number - 1.5))
    gaps.axhline(0, color="black", linewidth=0.8)
    for axes in (values, gaps):
        axes.set_xscale("log", base=2)
        axes.set_xticks(budgets, [f"{budget:g}" for budget in budgets])
        axes.minorticks_off()
        axes.set_xlabel("training tokens, multiples of 20 a parameter")
    values.set_ylabel("validation perplexity")
    values.set_title(f"{scale}; bars: ± a standard deviation of seeds")
    values.legend(handlelength=3)
    gaps.set_ylabel("loss of M+Adam - loss of the other (nats)")
    gaps.set_title("below 0 M+Adam is better; bars: 95 % intervals")
    gaps.legend(
        handlelength=3,
        title="open marks: one seed, no interval",
        title_fontsize="small",
        loc="lower right",
    )
    return figure


def draw_row(axes, row, losses, beside):
    """A line of perplexities, slightly to the side of the others'."""
    points = [
        (budget * beside, *(compare.perplexity_bar(found) or [math.nan] * 3))
        for budget, found in losses.items()
        if found
    ]
    look = {**style.optimizer(row.optimizer), **style.regime(row.regime)}
    if points:  # a line breaks off where a run diverged
        places, middle, below, above = zip(*points)
        axes.errorbar(places, middle, (below, above), label=row.label, markersize=4, **look)
    diverged = [
        budget for budget, found in losses.items() if found and not compare.finite_mean(found)
    ]
    style.mark_diverged(axes, diverged, look["color"])


def draw_gap(axes, pair, losses, beside):
    """A line of differences; those of several seeds have a filled mark and an interval."""
    row, other = pair
    compared = {
        budget: found
        for budget in budgets_of(losses)
        if (found := compare.difference(losses[row, budget], losses[other, budget]))
    }
    look = {**style.optimizer(other.optimizer), **style.regime(row.regime)}
    means = [found.mean if math.isfinite(found.mean) else math.nan for found in compared.values()]
    axes.plot(
        [budget * beside for budget in compared],
        means,
        markerfacecolor="white",
        label=f"{row.regime}, against {other.optimizer}",
        **look,
    )
    for budget, found in compared.items():
        if found.is_testable:
            low, high = found.interval
            axes.errorbar(
                budget * beside,
                found.mean,
                [[found.mean - low], [high - found.mean]],
                color=look["color"],
                marker=look["marker"],
                linestyle="none",
            )


def label(key, _):
    row, budget = key
    return row.regime, row.optimizer, f"{budget:g}"


def main(arguments=None):
    artefact = Artefact("chinchilla_figure", __doc__, arguments, add_arguments)
    cells = cells_of(artefact)
    losses = artefact.losses(["regime", "optimizer", "budget"], cells, label)
    lines = [FIGURE, "", *tables(losses), "", tuning(artefact.tuned, budgets_of(cells))]
    return artefact.finish(
        "Perplexity over the length of training",
        lines,
        [cell for of_seeds in cells.values() for cell in of_seeds],
        draw(losses, artefact.scale),
    )
