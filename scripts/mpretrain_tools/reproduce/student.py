"""Student's t distribution and Holm's correction for several tests, with Python's standard library
alone.
"""

import math

TINY = 1e-300  # stands for 0 where a continued fraction would divide by it
TERMS = 10_000  # far more than are ever needed


def incomplete_beta(a, b, x):
    """The regularized incomplete beta function I_x(a, b), by its continued fraction (DLMF
    8.17.22).
    """
    if not 0 < x < 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # there the fraction of the mirrored function converges faster
        return 1 - incomplete_beta(b, a, 1 - x)
    logarithm = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return math.exp(logarithm) / a / _fraction(a, b, x)


def _fraction(a, b, x):
    """1 + d1/(1 + d2/(1 + ...)) by Lentz's method."""
    value, up, down = 1.0, 1.0, 0.0
    for term in range(1, TERMS):
        d = _coefficient(a, b, x, term)
        down = 1 / (1 + d * down or TINY)
        up = 1 + d / up or TINY
        value *= up * down
        if abs(up * down - 1) < 1e-15:
            break
    return value


def _coefficient(a, b, x, term):
    m = term // 2
    if term % 2 == 0:
        return m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
    return -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))


def two_sided(t, freedom):
    """The probability of a |t| as large or larger, with so many degrees of freedom."""
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def quantile(probability, freedom):
    """The t below which a share `probability` of the distribution lies; 0.5 < probability < 1."""
    above = 2 * (1 - probability)
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > above:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > above else (low, middle)
    return (low + high) / 2


def holm(values):
    """p values adjusted by Holm's step-down method, in the order given."""
    adjusted, least = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        least = max(least, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = least
    return adjusted
