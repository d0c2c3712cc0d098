"""The paper's Apollo-E table: bytes of optimizer state a parameter, exact, and perplexity by rank
and mode at one size.

    scripts/reproduce.py apollo_table --tokens data/tokens --work runs --output docs/results/pico

Bytes are counted by `mpretrain plan` for the paper's 130M and 350M, whatever --scale is. Exits 1 if
one differs from the paper in a printed digit. --extra adds the mode "mini" at the ranks for which
the paper prints nothing.
"""

import math
import sys
from dataclasses import dataclass

from .. import markdown
from ..sweeps.plan import plan
from . import compare, paper, style
from .artefact import Artefact, by_seed, perplexity, spread
from .rows import BY_KEY, SIZES, Row

PAPER_SIZES = ("130m", "350m")  # the columns of paper.APOLLO_E
RANKS = (1, 4, 8, 16)


@dataclass(frozen=True)
class Line:
    """Of the table: what is trained for it, and which of the paper's lines it is."""

    label: str
    row: Row
    rank: int = 0  # 0: no Apollo-E
    mode: str = ""

    @property
    def printed(self):
        """((bytes, perplexity) for each of PAPER_SIZES), None where the paper has no such line."""
        return paper.APOLLO_E.get(self.label)


def apollo(mode, rank):
    label = f"Apollo-E {mode}, r = {rank}"
    changes = {"optimizer.apollo_e": mode, "optimizer.apollo_e_rank": rank}
    return Line(
        label,
        Row("BF16/BF16", label, "bf16_apollo_e", changes=changes, tuned_as="bf16"),
        rank,
        mode,
    )


BF16_STATE = Line("AdamW, BF16 state", BY_KEY["bf16_adamw"])
FP32_STATE = Line("AdamW, FP32 state", BY_KEY["fp32_adamw"])
DENSE = Line("M+Adam, dense", BY_KEY["bf16"])
APOLLO = tuple(apollo(mode, rank) for mode in ("mini", "channel") for rank in RANKS)


def add_arguments(parser):
    parser.add_argument(
        "--extra", action="store_true", help="also make rows that the paper does not have"
    )


def lines_of(extra):
    """In the paper's order."""
    return [BF16_STATE, FP32_STATE, *(line for line in APOLLO if extra or line.printed), DENSE]


def counted_bytes(program, line, size):
    """Bytes of optimizer state a parameter, as the paper prints them."""
    overrides = [f"{key}={value}" for key, value in line.row.changes.items()]
    found = plan(program, line.row.file(size), *overrides)
    return f"{found['logical_bytes']['optimizer_state'] / found['parameters']:.3f}"


def bytes_table(program, lines):
    """(Markdown lines, labels of what differs from the paper)"""
    rows, wrong = [], []
    for line in lines:
        counted = [counted_bytes(program, line, size) for size in PAPER_SIZES]
        printed = [value for value, _ in line.printed] if line.printed else []
        wrong += [line.label] if printed and counted != printed else []
        rows.append([line.label, *counted, *(printed or ["", ""]), verdict(counted, printed)])
    sizes = [size.upper() for size in PAPER_SIZES]
    header = ["optimizer / state", *sizes, *(f"paper, {size}" for size in sizes), ""]
    title = "Bytes of optimizer state a parameter, counted by `mpretrain plan`:"
    return [title, "", *markdown.table(header, rows)], wrong


def verdict(counted, printed):
    if not printed:
        return ""
    return "equal" if counted == printed else "**differs**"


def perplexity_table(losses, scale):
    """Markdown lines from {line: {seed: loss}}."""
    rows = []
    for line, found in losses.items():
        values = list(found.values())
        rows.append(
            [
                line.label,
                spread(values),
                len(values),
                perplexity(values),
                *([f"{value:.3f}" for _, value in line.printed] if line.printed else ["", ""]),
            ]
        )
    header = [
        "optimizer / state",
        "validation loss",
        "seeds",
        "perplexity",
        *(f"paper, {size.upper()}" for size in PAPER_SIZES),
    ]
    same = "the same" if fp32_row_is_the_main_tables() else "not the same"
    return [
        (
            f"Perplexity at {scale}, weights and GEMMs in BF16. AdamW and dense M+Adam are rows"
            " of the main table:"
        ),
        "",
        *markdown.table(header, rows),
        "",
        (
            '"AdamW, FP32 state" is the FP32/TF32 row of the main table, weights in FP32 and all:'
            f" the paper's perplexities of the two are {same}."
        ),
        "",
        "Loss against dense M+Adam:",
        "",
        *compare.tested_table(["optimizer / state"], against_dense(losses)),
        "",
        compare.HOW,
    ]


def against_dense(losses):
    return {
        (line.label,): compare.difference(found, losses[DENSE])
        for line, found in losses.items()
        if line != DENSE
    }


def fp32_row_is_the_main_tables():
    """Whether the paper prints one perplexity for AdamW with FP32 states and for its FP32/TF32
    row.
    """
    columns = [BY_KEY["fp32_adamw"].paper[SIZES.index(size)] for size in PAPER_SIZES]
    return columns == [value for _, value in paper.APOLLO_E["AdamW, FP32 state"]]


def draw(losses, scale):
    """A line for each row: every seed's perplexity as a dot, their mean and deviation; None if
    nothing is finished.
    """
    bars = {line: bar for line, found in losses.items() if (bar := compare.perplexity_bar(found))}
    if not any(losses.values()):
        return None
    figure, axes = style.pyplot().subplots(figsize=(5.6, 0.36 * len(losses) + 0.9))
    for place, (line, found) in enumerate(losses.items()):
        look, seeds = look_of(line), [math.exp(loss) for loss in compare.finite(found)]
        axes.plot(seeds, [place + 0.25] * len(seeds), ".", color=look["color"], markersize=4)
        if len(seeds) < len(found):
            axes.text(
                1.01,
                place,
                f"{len(found) - len(seeds)} diverged",
                va="center",
                color=look["color"],
                transform=axes.get_yaxis_transform(),
            )
        if line in bars:
            middle, below, above = bars[line]
            axes.errorbar(middle, place, xerr=[[below], [above]], **look)
    axes.set_yticks(range(len(losses)), [line.label for line in losses])
    axes.set_ylim(len(losses) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("validation perplexity")
    axes.set_title(f"{scale}; bars: ± a standard deviation; dots: seeds", loc="left")
    return figure


def look_of(line):
    looks = {
        "channel": {"color": style.ORANGE, "marker": "v"},
        "mini": {"color": style.SKY, "marker": "P"},
    }
    return looks.get(line.mode) or style.optimizer(line.row.optimizer)


def main(arguments=None):
    artefact = Artefact("apollo_table", __doc__, arguments, add_arguments)
    lines = lines_of(artefact.args.extra)
    counted, wrong = bytes_table(artefact.args.program, lines)
    cells = {line: [artefact.cell(line.row, seed) for seed in artefact.seeds] for line in lines}
    in_order = by_seed(cells)
    losses = artefact.losses(["optimizer"], cells, lambda line, _: (line.label,), in_order)
    figure = "![Perplexity by row](apollo_table.png)"
    text = [*counted, "", *perplexity_table(losses, artefact.scale), "", figure]
    status = artefact.finish("Apollo-E", text, in_order, draw(losses, artefact.scale))
    for label in wrong:
        print(f"apollo_table: error: bytes of {label} differ from the paper's", file=sys.stderr)
    return 1 if wrong else status
