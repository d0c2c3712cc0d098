"""Which rows of a ledger count for a study: those of its text and of programs that it accepts.

Of a cell that two accepted programs computed, the program that the file lists first counts; where
any program is accepted, the row that ended first, so that a repetition changes no result.
"""

from ..sweeps.configuration import BadConfig
from .rows import ledger


class Known:
    """{cell without its text: row} of a ledger."""

    def __init__(self, study, path=None, corpus=""):
        self.study = study
        self.ledger = ledger(path or study.ledger)
        self.corpus = corpus or study.corpus[:16]
        self.read()

    def read(self):
        self.ledger.read()
        rows = list(self.ledger.results.values())
        self.corpora = sorted({row.corpus for row in rows})
        self.of_text = [row for row in rows if row.corpus == self._corpus()]
        self.other_text = len(rows) - len(self.of_text)
        self.rows = [row for row in self.of_text if self.is_accepted(row.program)]
        self.refused = [row for row in self.of_text if not self.is_accepted(row.program)]
        self.by_cell = {}
        for row in sorted(self.rows, key=self._rank, reverse=True):
            self.by_cell[row.cell] = row

    def is_accepted(self, program):
        return not self.study.programs or program in self.study.programs

    def get(self, cell):
        """The row of a Cell, None if it has none."""
        return self.by_cell.get(cell.identity())

    def all_of(self, cell):
        """Rows of the cell by all programs, also those that are not accepted."""
        identity = cell.identity()
        return sorted((row for row in self.of_text if row.cell == identity), key=self._rank)

    def _rank(self, row):
        programs = self.study.programs
        place = programs.index(row.program) if row.program in programs else len(programs)
        return place, row.ended, row.program

    def _corpus(self):
        """The text whose rows count: the one given, else the only one."""
        if self.corpus or not self.corpora:
            return self.corpus
        if len(self.corpora) > 1:
            raise BadConfig(
                f"{self.ledger.path}: corpus: found cells of {', '.join(self.corpora)}, expected"
                f' those of one text; name its SHA-256 as "corpus" in {self.study.path}'
            )
        return self.corpora[0]
