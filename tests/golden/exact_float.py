"""Scalar binary32 and bfloat16 arithmetic for oracles: one correctly rounded operation at a time,
nothing fused implicitly.

+ - * / and sqrt are numpy float32 operations (correctly rounded, subnormals kept). fma goes through
exact rationals, so it is rounded once: computing it in float64 would round twice.
"""

import math
from fractions import Fraction

import numpy as np

F32 = np.float32
MAX_FINITE = Fraction(2**24 - 1) * 2**104
OVERFLOW = MAX_FINITE + Fraction(
    2**103
)  # the tie between the largest finite value and infinity, and values above


def bits(x):
    return int(np.float32(x).view(np.uint32))


def from_bits(pattern):
    return np.uint32(pattern).view(np.float32)


def hex32(x):
    return f"{bits(x):08x}"


def round_to_float32(value):
    """Rounds a nonzero Fraction to binary32, to nearest even, by integer arithmetic only."""
    sign, magnitude = (-1.0, -value) if value < 0 else (1.0, value)
    if magnitude >= OVERFLOW:
        return F32(sign * math.inf)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    quantum = max(exponent - 23, -149)  # exponent of the ulp
    count = round(magnitude / Fraction(2) ** quantum)  # Fraction rounds half to even
    return F32(math.copysign(math.ldexp(count, quantum), sign))


def fma(a, b, c):
    """a*b + c, rounded once."""
    a, b, c = F32(a), F32(b), F32(c)
    if not all(map(np.isfinite, (a, b, c))):
        raise ValueError("fma of a non-finite value has no golden")
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact != 0:
        return round_to_float32(exact)
    negative = (math.copysign(1, a) * math.copysign(1, b) < 0) and math.copysign(1, c) < 0
    only_zeros = (a == 0 or b == 0) and c == 0
    return F32(-0.0) if only_zeros and negative else F32(0.0)


def clamp(x, low, high):
    return np.fmin(F32(high), np.fmax(F32(low), x))


def bf16_bits(x):
    """Rounds to nearest even; any NaN becomes 7fff; the largest float32 becomes infinity."""
    if np.isnan(x):
        return 0x7FFF
    u = bits(x)
    return (u + 0x7FFF + ((u >> 16) & 1)) >> 16


def bf16(x):
    """The bfloat16 nearest to x, as float32."""
    return from_bits(bf16_bits(x) << 16)


ENCODERS = {"fp32": lambda x: x, "bf16": bf16}
BIT_TEXTS = {"fp32": hex32, "bf16": lambda x: f"{bf16_bits(x):04x}"}


def from_hex(text):
    """Parses eight digits as a float32 pattern, four as a bfloat16 one."""
    return from_bits(int(text, 16) << (16 if len(text) == 4 else 0))
