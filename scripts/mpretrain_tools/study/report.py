"""Writes a study's tables, figures and verdicts again from its ledger: needs no program, no tokens.

    scripts/study.py report STUDY.json

Beside the study's file: results.md, tuning.md, their CSVs, hypotheses.csv, differences.csv,
updates.csv, figures.
"""

import argparse
import csv
import pathlib

from . import figures, reader, search, tables
from .findings import Findings
from .known import Known
from .results_page import ResultsPage
from .tuning_page import TuningPage


def parser():
    found = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    reader.add_study(found)
    found.add_argument(
        "--output", type=pathlib.Path, help="directory for the pages; default: the study's"
    )
    found.add_argument(
        "--figures",
        nargs="+",
        choices=("png", "pdf", "svg"),
        default=list(figures.KINDS),
        help="kinds of files; the pages show the first; default: png pdf",
    )
    found.add_argument("--no-figures", action="store_true", help="write pages and CSVs only")
    return found


def main():
    args = parser().parse_args()
    study = reader.read(args.study, args.quick)
    known = Known(study, args.ledger)
    walked = search.walk(study, lambda _, labelled: [known.get(cell) for _, cell in labelled])
    output = args.output or study.output
    output.mkdir(parents=True, exist_ok=True)
    kinds = [] if args.no_figures else args.figures
    for path in write(Findings(study, known, walked), output, kinds):
        print(f"written: {path}")
    return 0


def write(findings, output, kinds):
    """Paths of the files written, figures of these kinds among them."""
    drawn = figures.Figures(findings, output, kinds)
    draws = kinds and figures.are_possible()
    of_results, of_tuning = (drawn.of_results(), drawn.of_tuning()) if draws else ([], [])
    yield from drawn.written
    pages = {
        "results.md": ResultsPage(findings).lines(of_results),
        "tuning.md": TuningPage(findings).lines(of_tuning),
    }
    for name, lines in pages.items():
        text = "\n".join(lines).rstrip() + "\n"
        (output / name).write_text(text, encoding="utf-8")
        yield output / name
    files = {
        "results.csv": tables.results(findings),
        "tuning.csv": tables.tuning(findings),
        "hypotheses.csv": tables.hypotheses(findings),
        "differences.csv": tables.differences(findings),
        "updates.csv": tables.updates(findings),
    }
    for name, rows in ((name, rows) for name, rows in files.items() if rows):
        with open(output / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
        yield output / name
