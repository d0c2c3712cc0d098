"""What a study came to: losses, tested hypotheses, and which rows of the ledger they are of."""

import math

from . import hypotheses, updates


class Findings:
    """Of a Study, from what is Known and how far it was Walked."""

    def __init__(self, study, known, walked):
        self.study, self.known, self.walked = study, known, walked
        self.tested = hypotheses.adjusted([self._tested(one) for one in study.comparisons])
        self.described = [self._tested(one) for one in study.untested]

    def losses(self, part, arm):
        """{seed: loss} of the finished runs, inf of a diverged one."""
        rows = self.walked.rows[part, arm]
        return {seed: row.val_loss for seed, row in rows.items() if row is not None}

    def updates(self):
        """{arm: (part, seed, summary)} of the update statistics of each arm's first run that has
        some, whichever program recorded them.
        """
        found = {}
        for (part, arm), cells in self.walked.cells.items():
            for seed, cell in cells.items():
                texts = [row.updates for row in self.known.all_of(cell) if row.updates]
                if texts and arm not in found:
                    found[arm] = part, seed, updates.read(texts[0])
        return {arm: found[arm] for arm in self.study.arms.by_name if arm in found}

    def _tested(self, one):
        if not one.results:
            return hypotheses.tested(one, hypotheses.Sample())
        arms = list(dict.fromkeys(arm for _, arm in hypotheses.signs(one)))
        losses = {arm: self.losses(one.results, arm) for arm in arms}
        wanted = {arm: self.walked.rows[one.results, arm] for arm in arms}
        missing = ", ".join(
            f"{arm} {len(losses[arm])} of {len(wanted[arm])} seeds"
            for arm in arms
            if len(losses[arm]) < len(wanted[arm])
        )
        cells = self.walked.cells.get((one.results, arms[0]), {})  # none while its values are tuned
        cell = next(iter(cells.values()), self.study.cell(arms[0], 1, 1))
        vocabulary = cell.value("model.vocab_size")
        sample = hypotheses.sample_of(one, losses, math.log(vocabulary))
        return hypotheses.tested(one, sample, missing)

    def rows(self):
        """Of the ledger, as far as they are asked for."""
        cells = self.walked.all_cells()
        found = {row.key: row for cell in cells if (row := self.known.get(cell))}
        return list(found.values())

    def of_no_cell(self):
        """Rows of the ledger that no part of the study asks for."""
        asked = {cell.identity() for cell in self.walked.all_cells()}
        return [row for row in self.known.rows if row.cell not in asked]

    def drift(self):
        """Rows of cells that two programs computed."""
        found, seen = [], set()
        for (_, arm), cells in self.walked.cells.items():
            for seed, cell in cells.items():
                rows = [] if cell.identity() in seen else self.known.all_of(cell)
                seen.add(cell.identity())
                for other in rows[1:]:
                    one = rows[0]
                    first = [f"`{cell.identity()}`", self.study.arm(arm).label, seed]
                    first += [f"`{one.program}`", f"{one.val_loss:.6f}"]
                    second = [f"`{other.program}`", f"{other.val_loss:.6f}"]
                    same = one.val_loss == other.val_loss  # also where both diverged
                    difference = 0.0 if same else other.val_loss - one.val_loss
                    found.append([*first, *second, difference])
        return found
