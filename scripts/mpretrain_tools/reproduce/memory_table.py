"""The paper's memory table: bytes that training keeps, by optimizer and weight format, and weights
as they are stored.

    scripts/reproduce.py memory_table --scale 60m --output docs/results/60m

Counted by `mpretrain plan`; trains nothing. Exits 1 if a figure that the paper prints differs in
any digit.
"""

import sys
from dataclasses import dataclass

from ..markdown import table
from ..sweeps.plan import plan
from . import paper, style
from .artefact import Artefact
from .rows import SCALES, SIZES


@dataclass(frozen=True)
class Row:
    """What is counted: a file of configs/ without its size, and changes to it; `printed` is its row
    of the paper.
    """

    label: str
    config: str
    overrides: tuple = ()
    printed: str = ""


FP32_MASTER = (
    "precision.compute=bf16",
    "precision.optimizer_state=bf16",
    "precision.gradient=bf16",
)
ROWS = (
    Row("AdamW, FP32 master, BF16 states", "fp32_adamw", FP32_MASTER, "AdamW, FP32 master"),
    Row("M+Adam, BF16 master", "bf16", printed="M+Adam, BF16 master"),
    Row("M+Adam, FP8 master", "fp8", printed="M+Adam, FP8 master"),
    Row("AdamW + SR, BF16 master", "bf16_adamw_sr", printed="AdamW + SR, BF16 master"),
    Row("AdamW, BF16 master", "bf16_adamw"),
    Row("AdamW + Kahan, BF16 master", "bf16_adamw_kahan"),
    Row("AdamW, FP8 master", "fp8_adamw"),
    Row("AdamW, NVFP4 master", "nvfp4_adamw"),
    Row("M+Adam, NVFP4 master", "nvfp4"),
    Row("AdamW, FP32 everywhere", "fp32_adamw"),
)
COLUMNS = ("weights", "states", "persistent", "with gradient")
FORMATS = {"FP32": "fp32_adamw", "BF16": "bf16", "FP8, blocks of 128": "fp8", "NVFP4": "nvfp4"}


def nominal(artefact, row):
    """Bytes a parameter by COLUMNS."""
    counted = plan(artefact.args.program, f"{artefact.scale}_{row.config}.json", *row.overrides)
    found = counted["nominal_bytes_per_parameter"]
    weights, states, gradient = found["weights"], found["optimizer_state"], found["gradient"]
    return weights, states, weights + states, weights + states + gradient


def differing(counted):
    """Labels of what is not as printed, to the last digit."""
    return [
        row.label
        for row, found in counted.items()
        if row.printed and found != paper.MEMORY[row.printed]
    ]


def memory_table(counted):
    lines = []
    for row, found in counted.items():
        printed = paper.MEMORY.get(row.printed)
        verdict = (
            "" if printed is None else "**differs**" if differing({row: found}) else "as printed"
        )
        lines.append(
            [
                row.label,
                *(f"{value:g}" for value in found),
                " / ".join(map(str, printed or ())),
                verdict,
            ]
        )
    return table(["bytes a parameter", *COLUMNS, "paper", ""], lines)


def stored_weights(artefact):
    """{format: {size: (bytes, parameters)}}"""

    def of(size, config):
        found = plan(artefact.args.program, f"{size}_{config}.json")
        return found["logical_bytes"]["weights"], found["parameters"]

    sizes = sorted({artefact.scale, *SIZES}, key=SCALES.index)
    return {label: {size: of(size, config) for size in sizes} for label, config in FORMATS.items()}


def weight_table(stored):
    sizes = next(iter(stored.values()))
    rows = [
        [label, *(f"{total:,} ({total / n:.3f})" for total, n in of.values())]
        for label, of in stored.items()
    ]
    return table(["bytes of weights, scales included", *sizes], rows)


def records(counted, stored):
    """Lines of the CSV: table, row, column, bytes, bytes a parameter, paper."""
    for row, found in counted.items():
        for column, value, printed in zip(
            COLUMNS, found, paper.MEMORY.get(row.printed, [""] * len(COLUMNS))
        ):
            yield "nominal", row.label, column, "", f"{value:g}", printed
    for label, of in stored.items():
        for size, (total, parameters) in of.items():
            yield "stored weights", label, size, total, f"{total / parameters:.6f}", ""


PURPOSES = {"weights": style.BLUE, "states": style.ORANGE, "gradient": style.GREY}


def draw(counted):
    """Bars of the purposes, one behind the other; a mark where the paper prints a total."""
    figure, axes = style.pyplot().subplots(figsize=(6.4, 3.4))
    labels = [row.label for row in counted]
    begin = [0.0] * len(labels)
    for purpose, colour in PURPOSES.items():
        lengths = [of_purpose(found, purpose) for found in counted.values()]
        axes.barh(labels, lengths, left=begin, color=colour, height=0.7, label=purpose)
        begin = [left + length for left, length in zip(begin, lengths)]
    printed = {row.label: paper.MEMORY[row.printed][-1] for row in counted if row.printed}
    axes.plot(
        list(printed.values()),
        list(printed),
        "k|",
        markersize=14,
        markeredgewidth=2,
        label="paper, total",
    )
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("bytes a parameter")
    axes.legend(
        loc="lower center", bbox_to_anchor=(0.4, 1), ncols=4
    )  # above: a mark among the bars would look like data
    return figure


def of_purpose(found, purpose):
    weights, states, persistent, total = found
    return {"weights": weights, "states": states, "gradient": total - persistent}[purpose]


def main(arguments=None):
    artefact = Artefact("memory_table", __doc__, arguments)
    counted = {row: nominal(artefact, row) for row in ROWS}
    stored = stored_weights(artefact)
    lines = [
        "![Bytes a parameter by purpose](memory_table.png)",
        "",
        (
            f"Counted by `mpretrain plan` of {artefact.version()}. Nominal: weights of FP8 without"
            " their block scales, of NVFP4 with them; gradients in BF16 except FP32 everywhere."
            " The paper: weights, states, both, and with the gradient."
        ),
        "",
        *memory_table(counted),
        "",
        (
            "Weights as they are stored, scales included; embedding, norms and head are BF16 beside"
            " FP8 and NVFP4. In brackets bytes a parameter."
        ),
        "",
        *weight_table(stored),
    ]
    artefact.write_figure(draw(counted))
    artefact.write_csv(
        ["table", "row", "column", "bytes", "bytes_per_parameter", "paper"],
        records(counted, stored),
    )
    artefact.write_markdown("Memory table", lines)
    wrong = differing(counted)
    for label in wrong:
        print(f"memory_table: error: {label} differs from the paper", file=sys.stderr)
    return 1 if wrong else 0
