"""Tests of a study's hypotheses over seeds: differences, equivalence within a margin, interactions.

Runs of the same seed are pairs, for a seed fixes the first weights and the order of the text; arms
that share no seed are compared as independent samples (Welch, 1947). An interaction is the
difference of two differences. p values of a family are adjusted by Holm's method.

A diverged run counts as the worst value, never as missing: as the loss of a model that predicts
all tokens alike, ln V, or as the worst loss seen among the runs compared, if that is worse. Such a
value is an outlier of an arbitrary size, which a t test is not made for; where a run diverged, the
verdict is therefore that of the exact test by ranks (Wilcoxon's signed-rank test, or the rank-sum
test of independent samples), and the t test stands beside it.
"""

import math
import statistics
from dataclasses import dataclass

from ..reproduce import student
from ..reproduce.compare import SHOWN
from . import rank_tests

POWER = 0.8  # of the smallest difference that is told


@dataclass(frozen=True)
class Sample:
    """What is tested: differences of pairs, or independent samples that are added with signs."""

    pairs: tuple = ()
    seeds: tuple = ()  # of the pairs
    independent: tuple = ()  # (sign, (loss, ...)), where there are no pairs
    unpaired: int = 0  # runs without a partner, which a paired test leaves out
    diverged: tuple = ()  # "arm seed" of each diverged run
    worst: float = math.nan  # what these count as

    @property
    def mean(self):
        if self.pairs:
            return statistics.fmean(self.pairs)
        return sum(sign * statistics.fmean(losses) for sign, losses in self.independent)

    @property
    def count(self):
        if self.pairs:
            return str(len(self.pairs))
        return ", ".join(str(len(losses)) for _, losses in self.independent)

    @property
    def is_testable(self):
        if self.pairs:
            return len(self.pairs) > 1
        return bool(self.independent) and all(len(losses) > 1 for _, losses in self.independent)

    @property
    def error(self):
        """Standard error of the mean."""
        if self.pairs:
            return statistics.stdev(self.pairs) / math.sqrt(len(self.pairs))
        return math.sqrt(sum(self._parts()))

    @property
    def freedom(self):
        """Degrees of freedom; of independent samples by Satterthwaite."""
        if self.pairs:
            return len(self.pairs) - 1
        sizes = [len(losses) for _, losses in self.independent]
        below = sum(part**2 / (size - 1) for part, size in zip(self._parts(), sizes))
        return sum(self._parts()) ** 2 / below if below else sum(sizes) - len(sizes)

    def _parts(self):
        return [statistics.variance(losses) / len(losses) for _, losses in self.independent]


@dataclass(frozen=True)
class Tested:
    """A hypothesis and what the runs say."""

    comparison: object
    sample: Sample
    missing: str = ""  # which runs there are, where some are not
    mean: float = math.nan
    interval: tuple = ()  # of 95 %, by the t distribution
    t: float = math.nan
    p_t: float = math.nan
    p_rank: float = math.nan
    p_sign: float = math.nan
    adjusted: float = math.nan  # the deciding p by Holm's method

    @property
    def p(self):
        """The one that decides: of ranks where a run diverged; 1 where nothing can be tested."""
        found = self.p_rank if self.sample.diverged else self.p_t
        return 1.0 if math.isnan(found) else found

    @property
    def test(self):
        if not self.sample.is_testable:
            return ""
        tost = ", TOST" if self.comparison.kind == "equivalence" else ""
        if self.sample.diverged:
            return ("signed-rank" if self.sample.pairs else "rank-sum") + tost
        return ("paired t" if self.sample.pairs else "Welch's t") + tost

    @property
    def verdict(self):
        if math.isnan(self.mean):
            return "not run"
        if not self.sample.is_testable:
            return "too few runs, no test"
        shown = self.adjusted < SHOWN
        direction = "lower" if self._lies_below() else "higher"
        if self.comparison.kind == "equivalence":
            margin = f"within {self.comparison.margin:g}"
            if shown:
                return f"equivalent {margin}"
            apart = self.interval[0] > 0 or self.interval[1] < 0
            apart = apart and not self.sample.diverged  # whose interval means little
            return f"equivalence not shown {margin}" + f"; {direction} by its interval" * apart
        return direction if shown else "no difference shown"

    def _lies_below(self):
        """By the test that decides: the mean of a sample with a diverged run is as arbitrary as
        what that run counts as.
        """
        below, above, _ = _ranks(self.sample) if self.sample.diverged else (math.nan,) * 3
        return self.mean < 0 if math.isnan(below) else below < above

    def smallest(self, alpha):
        """The difference that a paired t test at alpha finds with POWER, at the spread seen; the
        usual approximation (t of alpha plus t of power) times the standard error. NaN where no t
        test decides.
        """
        sample = self.sample
        if not sample.is_testable or sample.diverged or self.comparison.kind == "equivalence":
            return math.nan
        reach = student.quantile(1 - alpha / 2, sample.freedom)
        return (reach + student.quantile(POWER, sample.freedom)) * sample.error


def sample_of(comparison, rows, uniform):
    """The Sample of a comparison from {arm: {seed: loss, inf of a diverged run}} of finished
    runs.
    """
    signed = signs(comparison)
    losses = [(arm, rows.get(arm, {})) for _, arm in signed]
    diverged = tuple(
        f"{arm} seed {seed}"
        for arm, found in dict(losses).items()
        for seed, loss in found.items()
        if not math.isfinite(loss)
    )
    finite = [loss for _, found in losses for loss in found.values() if math.isfinite(loss)]
    worst = max([uniform, *finite])
    whole = [
        {seed: loss if math.isfinite(loss) else worst for seed, loss in found.items()}
        for _, found in losses
    ]
    if not all(whole):
        return Sample(diverged=diverged, worst=worst)
    common = [seed for seed in whole[0] if all(seed in found for found in whole)]
    if not common:
        independent = [(sign, tuple(found.values())) for (sign, _), found in zip(signed, whole)]
        return Sample(independent=tuple(independent), diverged=diverged, worst=worst)
    pairs = [sum(sign * found[seed] for (sign, _), found in zip(signed, whole)) for seed in common]
    unpaired = sum(len(found) - len(common) for found in whole)
    return Sample(tuple(pairs), tuple(common), (), unpaired, diverged, worst)


def signs(comparison):
    """[(sign, arm), ...]"""
    if comparison.kind != "interaction":
        return list(zip((1, -1), comparison.arms))
    (a1, a2), (b1, b2) = comparison.arms
    return [(1, a1), (-1, a2), (-1, b1), (1, b2)]


def tested(comparison, sample, missing=""):
    """A Tested without its family's adjustment."""
    if not (sample.pairs or sample.independent):
        return Tested(comparison, sample, missing)
    if not sample.is_testable:
        return Tested(comparison, sample, missing, sample.mean)
    test = _equivalence if comparison.kind == "equivalence" else _difference
    reach = student.quantile(0.975, sample.freedom) * sample.error
    interval = (sample.mean - reach, sample.mean + reach)
    return Tested(comparison, sample, missing, sample.mean, interval, *test(comparison, sample))


def _difference(_, sample):
    """(t, p of t, p of ranks, p of signs), of both sides"""
    t = _t(sample.mean, sample.error)
    return t, two_sided(t, sample.freedom), _ranks(sample)[2], _sign(sample.pairs)[2]


def _equivalence(comparison, sample):
    """The same of two one-sided tests (Schuirmann, 1987): that it lies above -margin, and below
    margin; the larger p of the two.
    """
    margin = comparison.margin
    low = _t(sample.mean + margin, sample.error)
    high = _t(sample.mean - margin, sample.error)
    p_t = max(_above(low, sample.freedom), _above(-high, sample.freedom))
    p_rank = max(_ranks(sample, margin)[1], _ranks(sample, -margin)[0])
    p_sign = max(
        _sign([value + margin for value in sample.pairs])[1],
        _sign([value - margin for value in sample.pairs])[0],
    )
    return min(low, -high), p_t, p_rank, p_sign


def _t(value, error):
    if error:
        return value / error
    return math.copysign(math.inf, value) if value else 0.0


def two_sided(t, freedom):
    if math.isinf(t):
        return 0.0
    return student.two_sided(t, freedom)


def _above(t, freedom):
    """That chance brings a t as large or larger."""
    half = two_sided(t, freedom) / 2
    return half if t > 0 else 1 - half


def _ranks(sample, shift=0.0):
    """(p below, p above, p of either side) of the differences moved by `shift`. Independent samples
    of more than two arms have no such test.
    """
    if sample.pairs:
        return rank_tests.signed_rank([value + shift for value in sample.pairs])
    if len(sample.independent) != 2:
        return math.nan, math.nan, math.nan
    (_, ours), (_, theirs) = sample.independent
    return rank_tests.rank_sum([loss + shift for loss in ours], theirs)


def _sign(pairs):
    return rank_tests.sign(pairs) if pairs else (math.nan, math.nan, math.nan)


def adjusted(found):
    """The same Tested, in order, with Holm's p over those of their family. A hypothesis that cannot
    be tested yet counts with p = 1, so that a family is never smaller than it was planned.
    """
    families = {}
    for one in found:
        families.setdefault(one.comparison.family, []).append(one)
    values = {}
    for family in families.values():
        values.update(
            {
                one.comparison.name: p
                for one, p in zip(family, student.holm([one.p for one in family]))
            }
        )
    return [_with(one, values[one.comparison.name]) for one in found]


def _with(one, value):
    return Tested(**{**vars(one), "adjusted": value})


def family_size(found, one):
    return sum(other.comparison.family == one.comparison.family for other in found)
