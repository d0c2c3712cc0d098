"""Draws the two figures of README.md from the tables under docs/results: loss by regime and
optimizer with every seed as a dot, and bytes a parameter by regime.

    scripts/plot_front_page.py --output docs/figures

The same tables give the same files to the byte.
"""

import argparse
import csv
import pathlib
import statistics

from ..repository import ROOT
from ..reproduce import style

RESULTS = ROOT / "docs" / "results" / "pico"
OPTIMIZERS = ("AdamW", "M+Adam")
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
    """(regime, optimizer) -> the losses of its seeds, in the table's order."""
    found = {}
    for row in rows:
        if row["optimizer"] in OPTIMIZERS:
            key = row["regime"], row["optimizer"]
            found.setdefault(key, []).append(float(row["val_loss"]))
    return found


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
    regimes = list(dict.fromkeys(regime for regime, _ in found))
    for place, regime in enumerate(regimes):
        for number, optimizer in enumerate(OPTIMIZERS):
            values = found.get((regime, optimizer))
            if values is None:
                continue
            colour, marker = style.OPTIMIZERS[optimizer]
            x = place + (number - 0.5) * 0.36
            label = optimizer if regime == "BF16/BF16" else None
            axes.plot([x] * len(values), values, marker, color=colour, alpha=0.6, label=label)
            mean = statistics.fmean(values)
            axes.plot([x - 0.14, x + 0.14], [mean, mean], color=colour)
    axes.set_xticks(range(len(regimes)), [regime.replace("/", "\n") for regime in regimes])
    axes.set_xlabel("weights, GEMMs")
    axes.set_ylabel("validation loss (nats)")
    axes.set_title("166 thousand parameters, a dot a seed, a line the mean")
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
    found = losses(rows_of(args.results / "main_table.csv"))
    table = bytes_by_purpose(rows_of(args.results / "memory_table.csv"))
    plt = style.pyplot()
    args.output.mkdir(parents=True, exist_ok=True)
    draw_losses(plt, found, args.output / "loss.svg")
    draw_bytes(plt, table, args.output / "bytes.svg")
