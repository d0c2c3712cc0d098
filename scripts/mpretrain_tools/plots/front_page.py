"""Draws the two figures of README.md from the tables under docs/results: loss by format of the
weights and optimizer with every seed as a dot, and bytes a parameter by format.

    scripts/tools.py plot_front_page --output docs/figures

The same tables give the same files to the byte.
"""

import argparse
import csv
import pathlib
import statistics

from ..repository import ROOT
from ..reproduce import style

MISTAKES = (OSError, KeyError, ValueError)

RESULTS = ROOT / "docs" / "results"
FORMATS = ("bf16", "fp8", "nvfp4")
# Arms of the study: what they are called, their colour and marker.
OPTIMIZERS = {
    "adamw_{}_sr": ("AdamW, stochastic rounding", style.BLUE, "o"),
    "mpa_{}": ("M+Adam", style.VERMILLION, "s"),
    "twin_{}": ("its additive twin", style.ORANGE, "v"),
    "adamw_{}_eco": ("AdamW, error feedback", style.GREEN, "^"),
}
SIZE = (4.3, 3.0)  # inches; two fit side by side on a page
# Rows of the memory table: what is drawn, in this order, and its short name.
ROWS = {
    "AdamW, FP32 everywhere": "AdamW, FP32",
    "AdamW, FP32 master, BF16 states": "AdamW, FP32, BF16 states",
    "AdamW, BF16 master": "AdamW, BF16",
    "M+Adam, BF16 master": "M+Adam, BF16",
    "AdamW, FP8 master": "AdamW, FP8",
    "M+Adam, FP8 master": "M+Adam, FP8",
    "AdamW, NVFP4 master": "AdamW, NVFP4",
    "M+Adam, NVFP4 master": "M+Adam, NVFP4",
}
PURPOSES = {"weights": style.VERMILLION, "states": style.BLUE, "gradient": style.GREY}


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def losses(rows):
    """(format, optimizer) -> the losses of its seeds in the study's longest runs."""
    found = {
        (name, optimizer): [
            float(row["val_loss"])
            for row in rows
            if row["results"] == "4x" and row["arm"] == optimizer.format(name)
        ]
        for name in FORMATS
        for optimizer in OPTIMIZERS
    }
    return {key: values for key, values in found.items() if values}


def bytes_by_purpose(rows):
    """Name of a row -> bytes a parameter of weights, states and gradient."""
    nominal = {
        (row["row"], row["column"]): float(row["bytes_per_parameter"])
        for row in rows
        if row["table"] == "nominal"
    }
    return {
        name: (
            nominal[row, "weights"],
            nominal[row, "states"],
            nominal[row, "with gradient"] - nominal[row, "persistent"],
        )
        for row, name in ROWS.items()
    }


def draw_losses(plt, found, path):
    figure, axes = plt.subplots(figsize=SIZE)
    for number, (optimizer, (label, colour, marker)) in enumerate(OPTIMIZERS.items()):
        for place, name in enumerate(FORMATS):
            values = found.get((name, optimizer), [])
            x = place + (number - (len(OPTIMIZERS) - 1) / 2) * 0.2
            axes.plot([x] * len(values), values, marker, color=colour, alpha=0.6, label=label)
            label = None  # once is enough
            if values:
                mean = statistics.fmean(values)
                axes.plot([x - 0.08, x + 0.08], [mean, mean], color=colour)
    axes.set_xticks(range(len(FORMATS)), [name.upper() for name in FORMATS])
    axes.set_xlabel("stored weights")
    axes.set_ylabel("validation loss (nats)")
    axes.set_title("166 thousand parameters, 4×; a dot a seed")
    axes.grid(axis="x", visible=False)
    axes.legend(loc="upper left")
    save(plt, figure, path)


def draw_bytes(plt, table, path):
    figure, axes = plt.subplots(figsize=SIZE)
    names = list(table)
    left = [0.0] * len(names)
    for number, (purpose, colour) in enumerate(PURPOSES.items()):
        widths = [table[name][number] for name in names]
        axes.barh(names, widths, left=left, color=colour, height=0.7, label=purpose)
        left = [a + b for a, b in zip(left, widths)]
    for place, total in enumerate(left):
        axes.text(total + 0.15, place, f"{total:.3g}", va="center", fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 18.5)
    axes.set_xlabel("bytes a parameter")
    axes.set_title("optimizer and stored weights")
    axes.grid(axis="y", visible=False)
    axes.legend(loc="lower right")
    save(plt, figure, path)


def save(plt, figure, path):
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--results", type=pathlib.Path, default=RESULTS, metavar="DIR", help="tables (%(default)s)"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, required=True, metavar="DIR", help="for the two SVG files"
    )
    args = parser.parse_args()
    found = losses(rows_of(args.results / "study" / "results.csv"))
    table = bytes_by_purpose(rows_of(args.results / "pico" / "memory_table.csv"))
    plt = style.pyplot()
    args.output.mkdir(parents=True, exist_ok=True)
    draw_losses(plt, found, args.output / "loss.svg")
    draw_bytes(plt, table, args.output / "bytes.svg")
