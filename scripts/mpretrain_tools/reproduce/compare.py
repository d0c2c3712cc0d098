"""Losses of one row beside those of another: differences over seeds and whether they can be told
from chance, reductions of perplexity, how tables print all that.

Losses of a row are {seed: validation loss} of its finished runs; a diverged run has the loss inf.
Two rows are compared by the seeds that both have, for a seed fixes the first weights and the order
of the text: a paired t test. Rows without a common seed are compared by Welch's. Intervals are of
95 %; p values of one table are adjusted by Holm's method, and words follow the adjusted ones: below
SHOWN a difference is called lower or higher, else none is shown.
"""

import math
import statistics
from dataclasses import dataclass

from ..markdown import table
from . import student

SHOWN = 0.05


@dataclass(frozen=True)
class Difference:
    """Mean over seeds, and the standard error of that mean; NaN of a single seed or of diverged
    runs.
    """

    mean: float  # infinite where more runs of one row diverged than of the other
    error: float
    freedom: float  # degrees of freedom of its t
    count: str  # pairs, or runs of either row
    diverged: tuple = (0, 0)  # runs of the row, and of the baseline

    def __str__(self):
        return self.diverged_as_text() if any(self.diverged) else f"{self.mean:+.4f}"

    @property
    def reduction(self):
        """Of perplexity, in per cent; positive where it is lower. None where a run diverged."""
        return None if any(self.diverged) else 100 * (1 - math.exp(self.mean))

    @property
    def is_testable(self):
        return not math.isnan(self.error)

    @property
    def interval(self):
        """Of 95 %; None where there is nothing to test."""
        if not self.is_testable:
            return None
        reach = student.quantile(0.975, self.freedom) * self.error
        return self.mean - reach, self.mean + reach

    @property
    def p(self):
        """That chance alone brings a difference as large or larger; 1 where there is nothing to
        test.
        """
        if not self.is_testable:
            return 1.0
        if self.error == 0:
            return float(self.mean == 0)
        return student.two_sided(self.mean / self.error, self.freedom)

    def is_below(self):
        """In the mean. A diverged run counts as worse than any other."""
        return self.mean < 0

    def diverged_as_text(self):
        ours, baselines = self.diverged
        return f"diverged: {ours} run{'' if ours == 1 else 's'}, {baselines} of the other"


@dataclass(frozen=True)
class Tested:
    """A difference beside others of the same table."""

    difference: Difference
    adjusted: float  # its p by Holm's method

    @property
    def outcome(self):
        """In words."""
        found = self.difference
        if any(found.diverged):
            return "diverged"
        if not found.is_testable:
            return "one seed, no test"
        if self.adjusted >= SHOWN:
            return "no difference shown"
        return "lower" if found.is_below() else "higher"

    def entries(self):
        """Of a table, as TESTED names them."""
        found = self.difference
        if not found.is_testable:
            return [found.count, str(found), "", "", "", self.outcome]
        low, high = found.interval
        return [
            found.count,
            str(found),
            f"[{low:+.4f}, {high:+.4f}]",
            probability(found.p),
            probability(self.adjusted),
            self.outcome,
        ]


TESTED = ["n", "difference", "95 % interval", "p", "p, Holm", ""]
UNTESTED = ["", "not run", "", "", "", ""]
HOW = (
    "n pairs of runs of the same seed; interval and p of a paired t test, p also adjusted by"
    " Holm's method over the rows of the table. A difference is called one where the adjusted p is"
    f" below {SHOWN:g}."
)


def probability(p):
    return f"{p:.2g}" if p >= 0.001 else "< 0.001"


def losses_by_seed(artefact, cells):
    """{seed: loss} of the finished ones."""
    return {cell.seed: result.val_loss for cell in cells if (result := artefact.result(cell))}


def difference(losses, baseline):
    """Of losses to the baseline's, None where a row has no finished run."""
    if not losses or not baseline:
        return None
    diverged = tuple(sum(map(math.isinf, row.values())) for row in (losses, baseline))
    if any(diverged):
        ours, baselines = diverged
        mean = math.nan if ours == baselines else math.copysign(math.inf, ours - baselines)
        return Difference(mean, math.nan, math.nan, f"{len(losses)}, {len(baseline)}", diverged)
    pairs = [losses[seed] - baseline[seed] for seed in losses if seed in baseline]
    return paired(pairs) if pairs else welch(list(losses.values()), list(baseline.values()))


def mean_of_common(losses, other):
    """Of the seeds that `other` has too."""
    return statistics.fmean(losses[seed] for seed in losses if seed in other)


def paired(values):
    """From differences of pairs."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return Difference(statistics.fmean(values), error, len(values) - 1, str(len(values)))


def welch(ours, theirs):
    """Of two rows that share no seed (Welch, 1947; degrees of freedom by Satterthwaite)."""
    mean, count = statistics.fmean(ours) - statistics.fmean(theirs), f"{len(ours)}, {len(theirs)}"
    if min(len(ours), len(theirs)) < 2:
        return Difference(mean, math.nan, math.nan, count)
    parts = [statistics.variance(row) / len(row) for row in (ours, theirs)]
    below = sum(part**2 / (len(row) - 1) for part, row in zip(parts, (ours, theirs)))
    freedom = sum(parts) ** 2 / below if below else len(ours) + len(theirs) - 2
    return Difference(mean, math.sqrt(sum(parts)), freedom, count)


def tested(differences):
    """{label: Tested} from {label: Difference or None}; what is None is left out.

    What could be tested but for a diverged run counts among the tests, with p = 1.
    """
    found = {label: one for label, one in differences.items() if one is not None}
    family = [label for label, one in found.items() if one.is_testable or any(one.diverged)]
    adjusted = dict(zip(family, student.holm([found[label].p for label in family])))
    return {label: Tested(one, adjusted.get(label, 1.0)) for label, one in found.items()}


def tested_table(header, differences):
    """Lines of a Markdown table of {(entry, ...): Difference or None}; HOW says what they are."""
    found = tested(differences)
    rows = [
        [*label, *(found[label].entries() if label in found else UNTESTED)] for label in differences
    ]
    return table([*header, *TESTED], rows)


def verdict(claim, differences, of_what):
    """A sentence: in how many the claimed negative difference is seen, and in how many it is no
    chance.

    Of {label: Difference}; diverged ones are named, and counted as worse than any other.
    """
    found = tested(differences)
    outcomes = [one.outcome for one in found.values()]
    below = sum(one.difference.is_below() for one in found.values())
    said = [f"{claim} in the mean in {below} of {len(found)} {of_what}"]
    if any(one.difference.is_testable for one in found.values()):
        said.append(
            f"a difference is shown (Holm-adjusted p below {SHOWN:g}) in {outcomes.count('lower')}"
            " of them"
        )
    if single := outcomes.count("one seed, no test"):
        said.append(f"{single} {'is' if single == 1 else 'are'} of one seed and not tested")
    said += [
        f"{label}: {one.difference}" for label, one in found.items() if any(one.difference.diverged)
    ]
    return "; ".join(said) + "."


def paper_reduction(perplexity, baseline):
    """In per cent, of what the paper prints."""
    return 100 * (1 - perplexity / baseline)


def percent(value):
    return f"{value:.2f} %"


def finite(losses):
    """Those of the seeds that did not diverge."""
    return [loss for loss in losses.values() if math.isfinite(loss)]


def finite_mean(losses):
    """(mean, standard deviation) of {seed: loss}, the deviation of one 0; None if nothing finished
    or one diverged.
    """
    values = list(losses.values())
    if not values or not all(map(math.isfinite, values)):
        return None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def perplexity_bar(losses):
    """(exp of the mean loss, how far below and above one standard deviation lies)"""
    found = finite_mean(losses)
    if found is None:
        return None
    mean, deviation = found
    return (
        math.exp(mean),
        math.exp(mean) - math.exp(mean - deviation),
        math.exp(mean + deviation) - math.exp(mean),
    )
