"""The page of a study's results: losses of each part, hypotheses, provenance."""

import math
import statistics

from ..markdown import table
from ..reproduce.compare import SHOWN, probability
from . import hypotheses, provenance, updates


class ResultsPage:
    """Of Findings."""

    def __init__(self, findings):
        self.findings, self.study, self.walked = findings, findings.study, findings.walked

    def lines(self, figures):
        """Of Markdown; figures: [(part, line), ...]"""
        study = self.study
        lines = [f"# {study.title}", "", *self._how_made(), ""]
        for part in study.results:
            lines += [f"## {part.name}", "", *self._results_table(part), ""]
            lines += [line for name, text in figures if name == part.name for line in (text, "")]
        lines += self._updates()
        if self.findings.tested:
            lines += ["## Hypotheses", "", *self._hypotheses(), ""]
        if self.findings.described:
            lines += ["## Differences that were not tested", "", *self._described(), ""]
        lines += ["## Provenance", "", *provenance.lines(self.findings)]
        return lines

    def _how_made(self):
        cells = self._cells()
        done = sum(row is not None for row in cells.values())
        missing = "" if done == len(cells) else " What is missing is said in the tables."
        shown = sum(len(rows) for rows in self.walked.rows.values())
        again = f" {shown - len(cells)} of them are in two parts." if shown > len(cells) else ""
        quick = self.study.quick
        trial = [
            f"**A trial with {quick:g} of all budgets: it shows that the path works, and says"
            " nothing about the arms.**",
            "",
        ]
        return [
            f"    scripts/study.py report {self.study.path.name}"
            + ("" if quick == 1 else f" --quick {quick:g}"),
            "",
            *([] if quick == 1 else trial),
            f"{done} of {len(cells)} runs of the results are finished.{missing}{again}"
            " How the values were found: [tuning](tuning.md).",
        ]

    def _cells(self):
        """{cell: row or None} of all parts; the same run may be in several. Those whose values are
        not known yet go by their place.
        """
        found = {}
        for place, rows in self.walked.rows.items():
            cells = self.walked.cells.get(place, {})
            for seed, row in rows.items():
                found[cells[seed].identity() if seed in cells else (place, seed)] = row
        return found

    def _results_table(self, part):
        header = ["arm", "validation loss", "seeds", "perplexity", "diverged", "tokens/s", "values"]
        rows = [self._result(part, arm) for arm in part.arms]
        seeds = ranges(part.seeds)
        return [
            *table(header, rows),
            "",
            f"Budget {part.budget:g} times 20 tokens a parameter; seeds {seeds}. Losses in nats per"
            " token, mean ± standard deviation over the seeds that did not diverge.",
        ]

    def _result(self, part, arm):
        losses = self.findings.losses(part.name, arm)
        finite = [loss for loss in losses.values() if math.isfinite(loss)]
        rows = [row for row in self.walked.rows[part.name, arm].values() if row]
        speed = statistics.median(row.tokens_per_second for row in rows) if rows else math.nan
        mean = statistics.fmean(finite) if finite else math.nan
        deviation = f" ± {statistics.stdev(finite):.4f}" if len(finite) > 1 else ""
        return [
            self.study.arm(arm).label,
            f"{mean:.4f}{deviation}" if finite else "diverged" if losses else "not run",
            f"{len(losses)} of {len(part.seeds)}",
            f"{math.exp(mean):.3f}" if finite else "",
            len(losses) - len(finite) or "",
            "" if math.isnan(speed) else f"{speed:,.0f}",
            self._values(part.name, arm),
        ]

    def _values(self, part, arm):
        """Where the hyperparameters of an arm are from."""
        if why := self.walked.waiting.get((part, arm)):
            return why
        other = self.study.arm(arm).tuned_as
        if self.study.tuned_in(arm) is None:
            return "of the configuration, not tuned"
        return f"tuned as {self.study.arm(other).label}" if other else "tuned"

    UPDATES = {
        "weight_rms": "weights",
        "asked_both": "update",
        "asked_additive": "additive step",
        "asked_multiplicative": "multiplicative step",
        "effective_rms": "stored",
        "edq_ratio": "EDQ ratio",
        "flipped": "codes changed",
    }

    def _updates(self):
        """A table of update statistics, a line an arm; nothing where no run recorded them."""
        rows = [
            [self.study.arm(arm).label, part, seed, record["step"], *self._sizes(record)]
            for arm, (part, seed, found) in self.findings.updates().items()
            for record in [updates.middle(found)]
        ]
        if not rows:
            return []
        return [
            "## Updates",
            "",
            "Root mean squares over the layers' matrices in one step, the one in the middle of a"
            " run. *Stored* is what the stored weights made of the update, and the EDQ ratio how"
            ' much of the update that is along its own direction ("Update statistics" in'
            " docs/numerics.md). All recorded steps: updates.csv.",
            "",
            *table(["arm", "results", "seed", "step", *self.UPDATES.values()], rows),
            "",
        ]

    def _sizes(self, record):
        for field in self.UPDATES:
            value = record.get(field)
            yield "" if value is None else f"{value:.3g}"

    # --- hypotheses

    HEADER = ("hypothesis", "n", "difference", "95 % interval", "test", "p", "p, Holm", "verdict")

    def _hypotheses(self):
        lines = []
        for family in dict.fromkeys(one.comparison.family for one in self.findings.tested):
            found = [one for one in self.findings.tested if one.comparison.family == family]
            lines += [f"Family {family}, hypotheses: {len(found)}.", ""]
            lines += [*table(self.HEADER, [self._hypothesis(one) for one in found]), ""]
            lines += [f"* {note}" for one in found for note in self._notes(one)]
            lines += [""] if lines[-1].startswith("*") else []
        lines += [*self._power(), "", HOW]
        return lines

    def _hypothesis(self, one):
        testable = one.sample.is_testable
        return [
            f"{one.comparison.name}: {self._formula(one.comparison)}",
            *self._size(one),
            one.test,
            probability(one.p) if testable else "",
            probability(one.adjusted) if testable else "",
            one.verdict,
        ]

    @staticmethod
    def _size(one):
        """n, difference, interval"""
        if math.isnan(one.mean):
            return ["0", "", ""]
        interval = f"[{one.interval[0]:+.4f}, {one.interval[1]:+.4f}]" if one.interval else ""
        return [one.sample.count, f"{one.mean:+.4f}", interval]

    def _described(self):
        """Differences with intervals and without a verdict."""
        rows = [
            [
                one.comparison.name,
                self._formula(one.comparison),
                one.comparison.results,
                *self._size(one),
            ]
            for one in self.findings.described
        ]
        notes = [f"* {note}" for one in self.findings.described for note in self._notes(one)]
        return [
            "Intervals are of 95 %, by the t distribution, each by itself; no p, because none was"
            " planned and none is adjusted.",
            "",
            *table(["what", "difference of", "results", "n", "difference", "95 % interval"], rows),
            *(["", *notes] if notes else []),
        ]

    def _formula(self, comparison):
        label = {name: arm.label for name, arm in self.study.arms.by_name.items()}
        if comparison.kind == "interaction":
            (a1, a2), (b1, b2) = comparison.arms
            return f"({label[a1]} − {label[a2]}) − ({label[b1]} − {label[b2]})"
        text = " − ".join(label[name] for name in comparison.arms)
        return f"\\|{text}\\| < {comparison.margin:g}" if comparison.margin else text

    def _notes(self, one):
        """What must not be overlooked about a hypothesis."""
        name, sample = one.comparison.name, one.sample
        if one.missing:
            yield f"{name}: {one.missing}."
        if sample.unpaired:
            yield f"{name}: {sample.unpaired} runs without a partner of their seed are left out."
        if sample.diverged:
            said = (
                f"{name}: diverged: {', '.join(sample.diverged)}; counted as the loss"
                f" {sample.worst:.4f}, the worst."
            )
            if sample.is_testable and one in self.findings.tested:
                said += (
                    f" The verdict is by ranks; t test p {probability(one.p_t)}"
                    + (f", sign test p {probability(one.p_sign)}" if sample.pairs else "")
                    + "."
                )
            yield said

    def _power(self):
        """What so many seeds could have shown."""
        rows = [
            [
                one.comparison.name,
                one.sample.count,
                _number(one.smallest(SHOWN)),
                _number(one.smallest(SHOWN / hypotheses.family_size(self.findings.tested, one))),
            ]
            for one in self.findings.tested
            if not math.isnan(one.smallest(SHOWN))
        ]
        if not rows:
            return ["No hypothesis has enough runs yet to say what they could show."]
        head = ["hypothesis", "n", "smallest difference", "as the first of its family"]
        return [
            "Power: the smallest true difference (nats) that a t test with so many runs, at the"
            f" spread seen, finds in {hypotheses.POWER:.0%} of studies at p < {SHOWN:g}, by itself"
            " and at Holm's strictest threshold:",
            "",
            *table(head, rows),
        ]


HOW = (
    f"Verdicts follow p adjusted by Holm's method within a family: below {SHOWN:g} a difference is"
    " called lower or higher, or equivalence shown. n counts pairs of runs of the same seed, or the"
    " runs of each arm where no seed is shared. Intervals are of 95 %, by the t distribution. A"
    " diverged run counts as the worst value, and then an exact test by ranks decides. A hypothesis"
    " that is not run yet counts in its family with p = 1."
)


def ranges(seeds):
    """1, 4 to 6 for 1, 4, 5, 6."""
    found = []
    for seed in sorted(seeds):
        if found and seed == found[-1][1] + 1:
            found[-1][1] = seed
        else:
            found.append([seed, seed])
    return ", ".join(
        f"{first} to {last}" if last > first + 1 else ", ".join(map(str, sorted({first, last})))
        for first, last in found
    )


def _number(value):
    return "" if math.isnan(value) else f"{value:.4f}"
