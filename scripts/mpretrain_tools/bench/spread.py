"""How figures of several rounds are put together: median, range, and how far two medians may lie
apart by chance.
"""

import math
import statistics

# Mean range of n normal values in units of their deviation (the d2 of control charts): n = 2 ...
# 10.
RANGE_OF_NORMALS = (1.128, 1.693, 2.059, 2.326, 2.534, 2.704, 2.847, 2.970, 3.078)
MEDIAN_OF_NORMALS = math.sqrt(math.pi / 2)  # deviation of a median of n over that of a mean of n
DEVIATIONS = 3.0  # what lies farther apart is not chance
# of the value: what rounds of one report do not show, such as where code and memory happen to lie
FLOOR = 0.02


def median_and_range(values):
    return statistics.median(values), min(values), max(values)


def range_text(values, digits=2):
    middle, low, high = median_and_range(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def deviation(values):
    """Of one round, from the range: with few rounds as good an estimate as the root mean square."""
    if len(values) < 2:
        return math.nan
    if len(values) > len(RANGE_OF_NORMALS) + 1:
        return statistics.stdev(values)
    return (max(values) - min(values)) / RANGE_OF_NORMALS[len(values) - 2]


def tolerance(value, sigma, rounds_then, rounds_now):
    """How far a median of `rounds_now` may lie from a stored one of `rounds_then` rounds that
    scattered by sigma.
    """
    chance = DEVIATIONS * MEDIAN_OF_NORMALS * sigma * math.sqrt(1 / rounds_then + 1 / rounds_now)
    return max(chance, FLOOR * abs(value))
