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
from dataclasses import dataclass, field

from .. import markdown, repository
from ..sweeps import configuration
from ..sweeps.configuration import BadConfig
from . import compare
from .artefact import spread

COLUMNS = ("regime", "optimizer", "row", "seed", "val_loss")


PAGES = repository.ROOT / "scripts/reproduce/seed_tables.json"


@dataclass(frozen=True)
class Family:
    """A heading and the tests under it: one table."""

    heading: str
    contrasts: dict  # {label: {row: factor}}: a sum, seed by seed, such as row less other
    also: list = field(default_factory=list)  # other files that have the rows, too


@dataclass(frozen=True)
class Page:
    name: str
    title: str
    families: list
    grid: str = ""  # a row of the CSV that is a table by beta1 and rate of its own


def pages():
    for name, of in configuration.parse(PAGES).items():
        families = [Family(**family) for family in of["tests"]]
        yield Page(name, of["title"], families, of.get("grid", ""))


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


def sums(label, weights, losses):
    """Of the seeds that all rows have."""
    missing = [row for row in weights if row not in losses]
    if missing:
        raise BadConfig(
            f"{label}: found no row {', '.join(missing)}; expected one of {', '.join(losses)}"
        )
    seeds = set.intersection(*(set(losses[row]) for row in weights))
    return [
        sum(factor * losses[row][seed] for row, factor in weights.items()) for seed in sorted(seeds)
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
    lines = []
    for family in page.families:
        files = [losses_of(read(directory / f"{name}.csv")) for name in (page.name, *family.also)]
        differences = {
            (label,): compare.paired(
                [value for losses in files for value in sums(label, weights, losses)]
            )
            for label, weights in family.contrasts.items()
        }
        table = compare.tested_table([""], differences)
        lines += [f"**{family.heading}**", "", *table, ""]
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
    for page in pages():
        write(page, directory)
    return 0
