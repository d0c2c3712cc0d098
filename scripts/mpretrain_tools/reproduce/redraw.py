"""A table that was written before, so that its page and figures can be made again without its
tokens.

The page has the command and the provenance, the CSV beside it says which run of the ledger a cell
is. Fingerprints hash the tokens, so without these they cannot be reckoned, only looked up.
"""

import csv
import re
import shlex

from ..sweeps.configuration import BadConfig

PLACEHOLDERS = ("--tokens", "--work", "--program")  # their values are not in a page's command


class Page:
    """<name>.md as it is."""

    def __init__(self, path):
        self.path = path
        try:
            self.lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as problem:
            raise BadConfig(
                f"{path}: {problem.strerror}; expected the page that --redraw makes again"
            ) from problem
        self.command = next(
            (line.strip() for line in self.lines if line.startswith("    scripts/")), ""
        )
        if not self.command:
            raise self._lacks("a line with its command")

    @property
    def arguments(self):
        """Those of its command, without the placeholders."""
        words = shlex.split(self.command)[2:]
        return [
            word
            for before, word in zip(["", *words], words)
            if not {word, before} & set(PLACEHOLDERS)
        ]

    @property
    def provenance(self):
        """The paragraph behind the command."""
        after = self.lines.index(f"    {self.command}") + 1
        return next(([line] for line in self.lines[after:] if line), [])

    @property
    def version(self):
        """Of the program that measured."""
        found = re.search(r"mpretrain [0-9.]+ [0-9a-f]{7,}(-dirty)?", "\n".join(self.lines))
        if not found:
            raise self._lacks('the program\'s version, such as "mpretrain 0.1.0 0123abc"')
        return found.group()

    def _lacks(self, what):
        return BadConfig(f"{self.path}: no {what}; write the page with its tokens first")


def fingerprints(path, header, labelled):
    """{cell: fingerprint} from a CSV whose columns `header`, and seed, say which of the labelled
    cells a line is.

    labelled: [(values of header, cell), ...]. A line of no cell and a cell without a line are
    errors: the page would lose what the CSV has, or call not run what was never asked for.
    """
    with open(path, newline="", encoding="utf-8") as file:
        lines = csv.DictReader(file)
        wanted = [*header, "seed", "fingerprint"]
        if missing := [name for name in wanted if name not in (lines.fieldnames or [])]:
            raise BadConfig(
                f"{path}:1: no column {', '.join(missing)}; expected {', '.join(wanted)}"
            )
        written = {tuple(line[name] for name in wanted[:-1]): line["fingerprint"] for line in lines}
    asked = {(*map(str, values), str(cell.seed)): cell for values, cell in labelled}
    for label in [
        *(label for label in written if label not in asked),
        *(label for label in asked if label not in written),
    ]:
        where = "the CSV alone" if label in written else "the script's cells alone"
        raise BadConfig(
            f"{path}: {', '.join(label)}: found in {where}; expected the same cells in both (see"
            " --seeds, --budget)"
        )
    return {asked[label]: fingerprint for label, fingerprint in written.items()}
