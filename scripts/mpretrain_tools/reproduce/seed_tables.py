"""Pages of runs that the other scripts cannot make again: what they came to, from a CSV, and tests
of their differences.

    scripts/reproduce.py seed_tables --output docs/results/pico

earlier_untuned   the main table before it was tuned, with more policies of block scales
pilot_controls    AdamW at other momenta, fresh seeds, and M+Adam without a multiplication

Reads <output>/<page>.csv (regime, optimizer, row, seed, val_loss; other columns are for people)
and, where a comparison says so, main_table.csv; trains nothing.
"""

import argparse
import csv
import pathlib
from dataclasses import dataclass

from .. import markdown
from ..sweeps.configuration import BadConfig
from . import compare
from .artefact import spread

COLUMNS = ("regime", "optimizer", "row", "seed", "val_loss")


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of rows, seed by seed, such as row less other; of several files, the seeds of
    all.
    """

    label: str
    weights: tuple  # ((row, factor), ...)
    also: tuple = ()  # other files that have the rows, too


def less(label, row, other, also=()):
    return Contrast(label, ((row, 1), (other, -1)), also)


@dataclass(frozen=True)
class Page:
    """Headings and the contrasts under them: one heading is one table, and one family of tests."""

    name: str
    title: str
    contrasts: dict  # {heading: (Contrast, ...)}
    grid: str = ""  # a row of the CSV that is a table by beta1 and rate of its own


LIVE_SCALES = (
    "What scales that are derived anew at every step cost, and how much of the difference above"
    " goes with them"
)
EARLIER = Page(
    "earlier_untuned",
    "An earlier main table, untuned, pico",
    {
        "M+Adam against AdamW of the same regime": (
            less("BF16/BF16", "bf16", "bf16_adamw"),
            less("BF16/FP8", "bf16_fp8", "bf16_fp8_adamw"),
            less("FP8/FP8, pow2 scales", "fp8", "fp8_adamw"),
            less("FP8/FP8, fp16 scales", "fp8_fp16", "fp8_adamw_fp16"),
            less("NVFP4/FP8, sticky scales", "nvfp4", "nvfp4_adamw"),
            less("NVFP4/FP8, live scales", "nvfp4_live", "nvfp4_adamw_live"),
        ),
        LIVE_SCALES: (
            less("FP8: AdamW, fp16 less pow2", "fp8_adamw_fp16", "fp8_adamw"),
            less("FP8: M+Adam, fp16 less pow2", "fp8_fp16", "fp8"),
            less("NVFP4: AdamW, live less sticky", "nvfp4_adamw_live", "nvfp4_adamw"),
            less("NVFP4: M+Adam, live less sticky", "nvfp4_live", "nvfp4"),
            Contrast(
                "FP8: M+Adam's difference to AdamW, fp16 less pow2",
                (("fp8_fp16", 1), ("fp8_adamw_fp16", -1), ("fp8", -1), ("fp8_adamw", 1)),
            ),
            Contrast(
                "NVFP4: M+Adam's difference to AdamW, live less sticky",
                (("nvfp4_live", 1), ("nvfp4_adamw_live", -1), ("nvfp4", -1), ("nvfp4_adamw", 1)),
            ),
        ),
        "Other comparisons in BF16/BF16": (
            less("AdamW + Kahan less AdamW", "bf16_adamw_kahan", "bf16_adamw"),
            less("AdamW + SR less AdamW", "bf16_adamw_sr", "bf16_adamw"),
            less("M+Adam less AdamW in FP32", "bf16", "fp32_adamw"),
            less("M+Adam less AdamW + SR", "bf16", "bf16_adamw_sr"),
            less("M+Adam + SR less AdamW + SR", "bf16_sr", "bf16_adamw_sr"),
            less("M+Adam + Kahan less AdamW + Kahan", "bf16_kahan", "bf16_adamw_kahan"),
        ),
    },
)

PILOT = Page(
    "pilot_controls",
    "A pilot of controls, pico",
    {
        "Does M+Adam gain on fresh seeds?": (
            less("BF16/BF16: M+Adam less AdamW", "bf16", "bf16_adamw"),
            less("BF16/BF16: M+Adam less AdamW, β1 0.8", "bf16", "bf16_adamw_beta1"),
            less("NVFP4/FP8: M+Adam less AdamW", "nvfp4", "nvfp4_adamw"),
        ),
        "Does the gain need a multiplication?": (
            less("BF16/BF16: additive twin less M+Adam", "bf16_twin", "bf16"),
            less("BF16/BF16: additive twin less AdamW", "bf16_twin", "bf16_adamw"),
            less("NVFP4/FP8: additive twin less M+Adam", "nvfp4_twin", "nvfp4"),
            less("NVFP4/FP8: additive twin less AdamW", "nvfp4_twin", "nvfp4_adamw"),
        ),
        "M+Adam less AdamW, the three seeds of the main table added": (
            less("BF16/BF16", "bf16", "bf16_adamw", ("main_table",)),
            less("NVFP4/FP8", "nvfp4", "nvfp4_adamw", ("main_table",)),
        ),
    },
    grid="grid",
)


def read(path):
    """The lines of a CSV, as dictionaries."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            lines = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (lines.fieldnames or [])]
            if missing:
                raise BadConfig(
                    f"{path}:1: no column {', '.join(missing)}; expected {', '.join(COLUMNS)}"
                )
            return list(lines)
    except OSError as problem:
        raise BadConfig(
            f"{path}: {problem.strerror}; expected a CSV of losses by row and seed"
        ) from problem


def losses_of(records):
    """{row: {seed: loss}}"""
    found = {}
    for record in records:
        found.setdefault(record["row"], {})[int(record["seed"])] = float(record["val_loss"])
    return found


def sums(contrast, losses):
    """Of the seeds that all rows have."""
    missing = [row for row, _ in contrast.weights if row not in losses]
    if missing:
        raise BadConfig(
            f"{contrast.label}: found no row {', '.join(missing)}; expected one of"
            f" {', '.join(losses)}"
        )
    seeds = set.intersection(*(set(losses[row]) for row, _ in contrast.weights))
    return [
        sum(factor * losses[row][seed] for row, factor in contrast.weights)
        for seed in sorted(seeds)
    ]


def losses_table(records, grid):
    """One line a row, in the order of the file."""
    rows = {record["row"]: record for record in reversed(records) if record["row"] != grid}
    losses = losses_of(records)
    lines = [
        [
            rows[row]["regime"],
            rows[row]["optimizer"],
            f"`{row}`",
            spread(list(losses[row].values())),
            len(losses[row]),
            " ".join(map(str, sorted(losses[row]))),
        ]
        for row in losses
        if row in rows
    ]
    return markdown.table(
        ["weights/compute", "optimizer", "row of the CSV", "validation loss", "n", "seeds"], lines
    )


def grid_table(records, grid):
    """Losses of one seed by beta1 and rate; nothing where the page has no grid."""
    found = {
        (record["beta1"], record["lr_additive"]): record["val_loss"]
        for record in records
        if record["row"] == grid
    }
    if not found:
        return []
    rates = list(dict.fromkeys(rate for _, rate in found))
    rows = [
        [beta1, *(found[beta1, rate] for rate in rates)]
        for beta1 in dict.fromkeys(beta1 for beta1, _ in found)
    ]
    title = "Validation loss of AdamW by β1 and learning rate, BF16/BF16, seed 1 alone:"
    return [title, "", *markdown.table(["β1", *rates], rows), ""]


def tests(page, directory):
    """Markdown lines: every heading with its table."""
    files = {
        name: losses_of(read(directory / f"{name}.csv"))
        for name in {
            page.name,
            *(name for family in page.contrasts.values() for one in family for name in one.also),
        }
    }
    lines = []
    for heading, family in page.contrasts.items():
        values = {
            one: [value for name in (page.name, *one.also) for value in sums(one, files[name])]
            for one in family
        }
        differences = {(one.label,): compare.paired(found) for one, found in values.items()}
        lines += [f"**{heading}**", "", *compare.tested_table([""], differences), ""]
    return [*lines, compare.HOW]


def write(page, directory):
    """<name>.md, with <name>.notes.md at its head: what these runs are has to be known first."""
    notes, records = directory / f"{page.name}.notes.md", read(directory / f"{page.name}.csv")
    head = [notes.read_text(encoding="utf-8").strip(), ""] if notes.exists() else []
    lines = [
        f"# {page.title}",
        "",
        f"    scripts/reproduce.py seed_tables --output {directory}",
        "",
        *head,
        *losses_table(records, page.grid),
        "",
        *grid_table(records, page.grid),
        *tests(page, directory),
        "",
    ]
    path = directory / f"{page.name}.md"
    path.write_text("\n".join(lines), encoding="utf-8")
    print(f"written: {path}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path("docs/results/pico"),
        help="directory of the CSVs and pages; default: docs/results/pico",
    )
    directory = parser.parse_args(arguments).output
    for page in (EARLIER, PILOT):
        write(page, directory)
    return 0
