"""The optimizer rules on one scalar weight, in exactly rounded float32: the oracle of the
bit-for-bit tests.

Each rule takes (w, g, state, options, t), updates the state in place (unrounded float32) and
returns the new weight. Options are decimal numbers rounded once to float32, as from a configuration
file; t starts at 1.
"""

import math

import numpy as np
from exact_float import ENCODERS, F32, bf16, bits, clamp, fma, from_bits

LN2 = from_bits(0x3F317218)
EXPM1_COEFFICIENTS = [
    F32(1 / 5040),
    F32(1 / 720),
    F32(1 / 120),
    F32(1 / 24),
    F32(1 / 6),
    F32(0.5),
    F32(1),
]

DEFAULTS = {
    "adamw": {
        "lr_additive": 1e-3,
        "beta1": 0.9,
        "beta2": 0.95,
        "eps": 1e-8,
        "weight_decay_additive": 0.0,
    },
    "additive_twin": {
        "lr_additive": 1e-3,
        "gradient_ratio": 0.5,
        "beta1": 0.9,
        "beta2": 0.95,
        "eps": 1e-8,
        "weight_decay_additive": 0.0,
    },
    "lion": {"lr_additive": 1e-4, "beta1": 0.9, "beta2": 0.99, "weight_decay_additive": 0.0},
    "madam": {"lr_multiplicative": 0.01, "beta2": 0.999, "g_bound": 10.0, "w_max": 0.0},
    "m_plus_adam": {
        "lr_additive": 1e-3,
        "lr_multiplicative": 1e-4,
        "beta1": 0.9,
        "beta2": 0.95,
        "eps": 1e-8,
        "relative_step": "over_weight",
        "tau": 1e-8,
        "bias_correction": True,
        "clip_multiplicative_direction": 10.0,
        "clip_relative_step": 0.75,
        "clip_exponent_step": 0.0,
        "clip_weight": 0.0,
        "clip_weight_mode": "absolute",
        "weight_decay_additive": 0.0,
        "weight_decay_multiplicative": 0.0,
        "weight_decay_multiplicative_mode": "scale",
    },
}
STATES = {
    "adamw": ("m", "v"),
    "additive_twin": ("m", "v"),
    "lion": ("m",),
    "madam": ("v",),
    "m_plus_adam": ("m", "v", "ve"),
}


def correction(beta, t, enabled):
    """1 - beta^t, in float64 from the float32 beta, rounded once."""
    return F32(1 - float(F32(beta)) ** t) if enabled else F32(1)


def per_op(o):
    """Whether every operation on a moment rounds to bfloat16."""
    return o.get("state_update", "once") == "per_op"


def ema(beta, state, value, o):
    if per_op(o):
        return bf16(bf16(beta * state) + (F32(1) - beta) * value)
    return fma(F32(1) - beta, value, beta * state)


def ema_square(beta, state, value, o):
    if per_op(o):
        return bf16(bf16(beta * state) + value * ((F32(1) - beta) * value))
    return fma(value, (F32(1) - beta) * value, beta * state)


def additive_direction(w, g, s, o, t):
    """Updates m and v; (m̂ + gradient_ratio g) / (√v̂ + eps) + decay w. The ratio is the twin's."""
    b1, b2, enabled = F32(o["beta1"]), F32(o["beta2"]), o.get("bias_correction", True)
    s["m"], s["v"] = ema(b1, s["m"], g, o), ema_square(b2, s["v"], g, o)
    c1, c2 = correction(o["beta1"], t, enabled), correction(o["beta2"], t, enabled)
    sum_ = fma(F32(o.get("gradient_ratio", 0)), g, s["m"] / c1)
    direction = sum_ / (np.sqrt(s["v"] / c2) + F32(o["eps"]))
    return fma(w, F32(o["weight_decay_additive"]), direction)


def adamw(w, g, s, o, t):
    return fma(-F32(o["lr_additive"]), additive_direction(w, g, s, o, t), w)


def lion_direction(w, g, s, o):
    """Updates m; returns the sign of a mean with beta1, + decay w."""
    c = ema(F32(o["beta1"]), s["m"], g, o)
    s["m"] = ema(F32(o["beta2"]), s["m"], g, o)
    return fma(w, F32(o["weight_decay_additive"]), np.sign(c))


def lion(w, g, s, o, t):
    return fma(-F32(o["lr_additive"]), lion_direction(w, g, s, o), w)


def multiplicative_step(w, g, s, o, t):
    """Relative step u before decay: limited, scaled by 1 / max(|w|, tau), limited again."""
    ge = (LN2 * w) * g
    s["ve"] = ema_square(F32(o["beta2"]), s["ve"], ge, o)
    n = ge / (np.sqrt(s["ve"] / correction(o["beta2"], t, o["bias_correction"])) + F32(o["eps"]))
    if o["clip_multiplicative_direction"] > 0:
        n = clamp(n, -F32(o["clip_multiplicative_direction"]), o["clip_multiplicative_direction"])
    u = -F32(o["lr_multiplicative"]) * n
    if o["relative_step"] == "over_weight":
        u = u / np.fmax(np.abs(w), F32(o["tau"]))
    r_max, d_max = F32(o["clip_relative_step"]), o["clip_exponent_step"]
    if r_max > 0:
        u = clamp(u, -(r_max - F32(1e-6)), r_max)
    if d_max > 0:
        u = clamp(u, F32(2.0**-d_max - 1), F32(2.0**d_max - 1))
    return u


def decayed_relative_step(w, u, o):
    if o["weight_decay_multiplicative"] == 0:
        return u
    decay = float(F32(o["lr_multiplicative"])) * o["weight_decay_multiplicative"]
    if o["weight_decay_multiplicative_mode"] == "scale":
        return u - F32(decay)
    if w == 0:
        return u
    x = -decay * math.frexp(float(w))[1]
    return fma(u, F32(2.0**x), F32(math.expm1(x * math.log(2.0))))


def limit_weight(w, o):
    w_max = F32(o["clip_weight"])
    return clamp(w, -w_max, w_max) if w_max > 0 else w


def m_plus_adam_parts(w, g, s, o, t):
    """Returns (relative step r, additive direction)."""
    direction = additive_direction(w, g, s, o, t)
    return decayed_relative_step(w, multiplicative_step(w, g, s, o, t), o), direction


def m_plus_adam(w, g, s, o, t):
    r, direction = m_plus_adam_parts(w, g, s, o, t)
    return limit_weight(fma(-F32(o["lr_additive"]), direction, fma(w, r, w)), o)


def expm1_polynomial(x):
    sum_ = EXPM1_COEFFICIENTS[0]
    for coefficient in EXPM1_COEFFICIENTS[1:]:
        sum_ = fma(sum_, x, coefficient)
    return sum_ * x


def madam_factor(w, g, s, o, t):
    """E(x), the relative change of w."""
    s["v"] = ema_square(F32(o["beta2"]), s["v"], g, o)
    den = np.sqrt(s["v"] / correction(o["beta2"], t, True))
    n = clamp(g / den, -F32(o["g_bound"]), o["g_bound"]) if den > 0 else F32(0)
    x = -(F32(o["lr_multiplicative"]) * n)
    return expm1_polynomial(-x if w < 0 else x)


def madam(w, g, s, o, t):
    w1 = fma(w, madam_factor(w, g, s, o, t), w)
    w_max = F32(o["w_max"])
    return clamp(w1, -w_max, w_max) if w_max > 0 else w1


def kahan_write(w, d, s, w_max):
    """Compensated bfloat16 store of w + d, of at most w_max if that is not 0; c is a bfloat16
    too.
    """
    y, w_max = s["c"] + d, F32(w_max)
    if w_max > 0:
        y = clamp(y, -w_max - w, w_max - w)
    stored = bf16(w + y)
    s["c"] = bf16((w - stored) + y)
    return stored


def kahan_per_op_adamw(w, g, s, o, t):
    """torchdistx AnyPrecisionAdamW: each operation rounds to bfloat16, decay is not compensated."""
    lr, b1, b2 = o["lr_additive"], o["beta1"], o["beta2"]
    decayed = bf16(w * F32(1 - lr * o["weight_decay_additive"]))
    s["m"], s["v"] = ema(F32(b1), s["m"], g, o), ema_square(F32(b2), s["v"], g, o)
    root = bf16(bf16(np.sqrt(s["v"])) / F32(math.sqrt(1 - b2**t)))
    root = bf16(root + F32(o["eps"]))
    change = bf16(s["c"] + -F32(lr / (1 - b1**t)) * (s["m"] / root))
    stored = bf16(decayed + change)
    s["c"] = bf16(change + bf16(decayed - stored))
    return stored


def kahan_step(rule, w, g, s, o, t):
    if o.get("kahan_variant", "fused") == "per_op":
        return kahan_per_op_adamw(w, g, s, o, t)
    if rule in ("adamw", "additive_twin"):
        return kahan_write(w, -(F32(o["lr_additive"]) * additive_direction(w, g, s, o, t)), s, 0)
    if rule == "lion":
        return kahan_write(w, -(F32(o["lr_additive"]) * lion_direction(w, g, s, o)), s, 0)
    if rule == "madam":
        return kahan_write(w, w * madam_factor(w, g, s, o, t), s, o["w_max"])
    r, direction = m_plus_adam_parts(w, g, s, o, t)
    return kahan_write(w, fma(w, r, -(F32(o["lr_additive"]) * direction)), s, o["clip_weight"])


def half_ulp(w):
    """Half an ulp of a bfloat16, but at least that of 2^-100."""
    if abs(w) < 2.0**-100:
        return F32(2.0**-108)
    return F32(2.0 ** (math.floor(math.log2(abs(float(w)))) - 8))


def exact_weight(writeback, w, c):
    """Returns the exact value of a weight stored as w with the residual c."""
    if writeback == "remainder":
        return from_bits((bits(w) + c) % 2**32)
    if writeback == "ulp_residual":
        return fma(F32(c), half_ulp(w) * (F32(1) / F32(127)), w)
    return w if c is None else c


def split_weight(writeback, exact, weight_format):
    """Returns (stored weight, c)."""
    if writeback == "remainder":
        upper = (bits(exact) + 0x8000) >> 16 << 16
        return from_bits(upper), bits(exact) - upper
    stored = ENCODERS[weight_format](exact)
    if writeback == "ulp_residual":
        units = F32(127) * ((exact - stored) / half_ulp(stored))
        return stored, int(np.rint(clamp(units, -127, 127)))
    return stored, exact


def kept_step(rule, w, g, s, o, t):
    """Steps a weight known more exactly than stored; s["c"] holds the residual."""
    exact = RULES[rule](exact_weight(o["writeback"], w, s["c"]), g, s, o, t)
    stored, s["c"] = split_weight(o["writeback"], exact, o["weight_format"])
    return stored


def fed_back_step(rule, w, g, s, o, t):
    """Returns (stored weight, weight before rounding). The error goes into m."""
    exact = RULES[rule](w, g, s, o, t)
    stored = ENCODERS[o["weight_format"]](exact)
    b1, b2, enabled = F32(o["beta1"]), o["beta2"], o.get("bias_correction", True)
    of_error = (1 - 1 / float(b1)) * float(correction(o["beta1"], t, enabled))
    k = F32(of_error / float(F32(o["lr_additive"])))
    root = np.sqrt(s["v"] / correction(b2, t, enabled)) + F32(o["eps"])
    s["m"] = fma(k * root, exact - stored, s["m"])
    return stored, exact


RULES = {
    "adamw": adamw,
    "additive_twin": adamw,  # with the ratio in the options
    "lion": lion,
    "madam": madam,
    "m_plus_adam": m_plus_adam,
}


def new_state(rule, writeback="nearest"):
    kept = {"kahan": F32(0), "remainder": 0, "ulp_residual": 0, "master": None}
    states = {name: F32(0) for name in STATES[rule]}
    return {**states, "c": kept[writeback]} if writeback in kept else states
