#!/usr/bin/env python3
"""Tests that docs/ and the figures of examples/ stay small: figures as SVG, PNG or PDF, what they
draw as CSV, what a benchmark printed as text, all of them quick to clone and to open.

tests/scripts/figures_test.py [CLASS[.TEST] ...]
"""

import pathlib
import tempfile
import unittest

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
EXAMPLES = DOCS.parent / "examples"
KIB = 1024
# Bytes of a file by its kind. JSON is what benchmarks measured, of which the pages are made.
MOST = {
    ".svg": 100 * KIB,
    ".png": 100 * KIB,
    ".pdf": 100 * KIB,
    ".csv": 100 * KIB,
    ".md": 100 * KIB,
    ".txt": 20 * KIB,
    ".json": 512 * KIB,
    # Of studies: a ledger with the curve of every run, and all that was tried.
    "runs.csv": 2048 * KIB,
    "results.csv": 512 * KIB,
    "tuning.csv": 512 * KIB,
}


def too_large(directory):
    """Lines on the files that are larger than those of their kind may be, or of no kind that
    belongs here.
    """
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        name, size = path.relative_to(directory), path.stat().st_size
        most = MOST.get(path.name, MOST.get(path.suffix))
        if path.suffix == ".lock":  # beside a ledger; git ignores it
            continue
        if most is None:
            yield f"{name}: kind {path.suffix!r}, expected one of {', '.join(MOST)}"
        elif size > most:
            yield f"{name}: {size:,} bytes, expected {most:,} or fewer; plot fewer points"


class Figures(unittest.TestCase):
    def test_no_file_of_docs_is_large(self):
        self.assertEqual(list(too_large(DOCS)), [])

    def test_every_example_shows_a_small_figure(self):
        pages = sorted(EXAMPLES.glob("*/README.md"))
        self.assertGreaterEqual(len(pages), 5)
        for page in pages:
            self.assertIn("](figure.svg)", page.read_text(encoding="utf-8"), page)
            self.assertLess((page.parent / "figure.svg").stat().st_size, 60 * KIB, page)

    def test_what_is_large_or_no_figure_is_named(self):
        with tempfile.TemporaryDirectory() as directory:
            for name, size in (
                ("small.png", MOST[".png"]),
                ("large.png", MOST[".png"] + 1),
                ("picture.gif", 1),
            ):
                pathlib.Path(directory, name).write_bytes(bytes(size))
            found = list(too_large(pathlib.Path(directory)))
        self.assertEqual([line.split(":")[0] for line in found], ["large.png", "picture.gif"])

    def test_there_are_figures(self):
        self.assertGreater(sum(path.suffix in (".svg", ".png") for path in DOCS.rglob("*")), 10)


if __name__ == "__main__":
    unittest.main()
