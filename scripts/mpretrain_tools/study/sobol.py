"""Sobol's sequence in up to 8 dimensions, with the direction numbers of Joe and Kuo.

S. Joe and F. Y. Kuo, Constructing Sobol sequences with better two-dimensional projections, SIAM J.
Sci. Comput. 30 (2008), file new-joe-kuo-6.21201; points in the order of Gray codes (Antonov and
Saleev, 1979). The first dimension is van der Corput's sequence in that order.
"""

import random

BITS = 32
DIMENSIONS = 8
# Of dimensions 2 to 8: the inner coefficients of the primitive polynomial, and the first m.
JOE_KUO = (
    (0, (1,)),
    (1, (1, 3)),
    (1, (1, 3, 1)),
    (2, (1, 1, 1)),
    (1, (1, 1, 3, 3)),
    (4, (1, 3, 5, 13)),
    (2, (1, 1, 5, 5, 17)),
)


def directions(dimension):
    """The direction numbers of a dimension, counted from 0, as fractions of 2^BITS."""
    if dimension == 0:
        return [1 << (BITS - 1 - bit) for bit in range(BITS)]
    inner, first = JOE_KUO[dimension - 1]
    m, degree = list(first), len(first)
    while len(m) < BITS:
        term = m[-degree] ^ (m[-degree] << degree)
        for power in range(1, degree):
            if inner >> (degree - 1 - power) & 1:
                term ^= m[-power] << power
        m.append(term)
    return [number << (BITS - 1 - bit) for bit, number in enumerate(m)]


TABLE = [directions(dimension) for dimension in range(DIMENSIONS)]


def point(index, dimensions):
    """Point `index` of the sequence, counted from 0, which is the origin."""
    gray, found = index ^ (index >> 1), [0] * dimensions
    for bit in range(gray.bit_length()):
        if gray >> bit & 1:
            found = [value ^ TABLE[axis][bit] for axis, value in enumerate(found)]
    return [value / 2**BITS for value in found]


def shifted(index, dimensions, seed):
    """The same point moved by a random vector of the seed, around the edges (Cranley and Patterson,
    1976).
    """
    draw = random.Random(f"sobol {seed}")
    shift = [draw.random() for _ in range(dimensions)]
    return [(value + moved) % 1.0 for value, moved in zip(point(index, dimensions), shift)]
