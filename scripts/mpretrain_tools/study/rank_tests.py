"""Exact tests by ranks and signs, for samples with outliers: how far a run is off makes no
difference to them.

Ties have the mean of their ranks, and differences of zero are left out (Wilcoxon, 1945). p values
are exact: all assignments of signs or groups are counted, which needs no approximation for the few
runs that a study has.
"""

import math
from collections import Counter


def ranks(values):
    """Of each value, doubled, so that the mean rank of a tie is a whole number."""
    ordered = sorted(values)
    place = {}
    for value in ordered:
        first = ordered.index(value)
        place[value] = 2 * first + 1 + ordered.count(value)
    return [place[value] for value in values]


def signed_rank(differences):
    """(p that they lie below 0, p above 0, p of either side) of Wilcoxon's signed-rank test."""
    found = [value for value in differences if value != 0]
    places = ranks([abs(value) for value in found])
    above = sum(place for place, value in zip(places, found) if value > 0)
    return _sides(_sums_of_signs(places), above)


def sign(differences):
    """(p below, p above, p of either side) of the sign test."""
    found = [value for value in differences if value != 0]
    above = sum(value > 0 for value in found)
    counts = Counter({k: math.comb(len(found), k) for k in range(len(found) + 1)})
    return _sides(counts, above)


def rank_sum(ours, theirs):
    """(p that ours lie below, p above, p of either side) of the rank-sum test of two samples."""
    places = ranks([*ours, *theirs])
    return _sides(_sums_of_choices(places, len(ours)), sum(places[: len(ours)]))


def _sides(counts, seen):
    total = sum(counts.values())
    below = sum(count for value, count in counts.items() if value <= seen) / total
    above = sum(count for value, count in counts.items() if value >= seen) / total
    return below, above, min(1.0, 2 * min(below, above))


def _sums_of_signs(places):
    """{sum of the positive ranks: number of the 2^n assignments of signs that have it}"""
    counts = Counter({0: 1})
    for place in places:
        new = Counter(counts)
        for value, count in counts.items():
            new[value + place] += count
        counts = new
    return counts


def _sums_of_choices(places, size):
    """{sum of ranks: number of choices of `size` of the places that have it}"""
    of_size = [Counter({0: 1}), *(Counter() for _ in range(size))]
    for place in places:
        for chosen in range(size, 0, -1):
            for value, count in of_size[chosen - 1].items():
                of_size[chosen][value + place] += count
    return of_size[size]
