"""Writes optimizer_golden.json: every optimizer rule on one scalar weight, bit for bit.

The results of optimizer_reference.py are computed first; before anything is written they are
compared with the known results of docs/numerics.md (`PUBLISHED`) and with its properties P1-P7 on
random inputs; a disagreement is an error.
"""

import json
import math
import pathlib
import sys

import numpy as np
from exact_float import BIT_TEXTS, ENCODERS, F32, from_hex, hex32
from optimizer_reference import (
    DEFAULTS,
    RULES,
    STATES,
    correction,
    ema_square,
    fed_back_step,
    kahan_step,
    kept_step,
    new_state,
)

FOLDER = pathlib.Path(__file__).resolve().parent
DEFAULT_GRADIENTS = (0.01, -0.003, 0.0005)
RESIDUAL_TEXTS = {
    "kahan": BIT_TEXTS["bf16"],
    "remainder": lambda c: f"{c % 2**16:04x}",
    "ulp_residual": lambda c: f"{c % 2**8:02x}",
    "master": hex32,
}


def step(case, w, g, s, t):
    """Does one update and its stores; returns (stored w, w before rounding or None)."""
    rule = case["rule"]
    copied = ("state_update", "writeback", "weight_format")
    o = {**case["options"], **{key: case[key] for key in copied}}
    if case["writeback"] == "kahan":
        exact, stored = None, kahan_step(rule, w, g, s, o, t)
    elif case["writeback"] != "nearest":
        exact, stored = None, kept_step(rule, w, g, s, o, t)
    elif "error_feedback" in o:
        stored, exact = fed_back_step(rule, w, g, s, o, t)
    else:
        exact = RULES[rule](w, g, s, o, t)
        stored = ENCODERS[case["weight_format"]](exact)
    for name in STATES[rule]:
        s[name] = ENCODERS[case["state_format"]](s[name])
    return stored, exact


def run(case):
    """Fills case["steps"]: bit patterns of everything stored, after each gradient."""
    w, s = from_hex(case["w0"]), new_state(case["rule"], case["writeback"])
    texts = {"w": BIT_TEXTS[case["weight_format"]], "c": RESIDUAL_TEXTS.get(case["writeback"])}
    case["steps"] = []
    for t, gradient in enumerate(case["gradients"], 1):
        w, exact = step(case, w, from_hex(gradient), s, t)
        found = {"w": texts["w"](w)}
        if case["weight_format"] == "bf16" and exact is not None:
            found["w_before_rounding"] = hex32(exact)
        found.update({k: texts.get(k, BIT_TEXTS[case["state_format"]])(x) for k, x in s.items()})
        case["steps"].append(found)
    return case


def make_case(
    name,
    rule,
    w0,
    *,
    options=None,
    gradients=DEFAULT_GRADIENTS,
    formats="fp32",
    gradient_format=None,
    writeback="nearest",
    state_update="once",
):
    """`formats` is for weight and states, and for gradients unless these have their own."""
    gradient_format = gradient_format or formats
    options = {**DEFAULTS[rule], **(options or {})}
    if options.get("relative_step") == "direct":
        del options["tau"]  # not an option of this rule
    return {
        "name": name,
        "rule": rule,
        "options": options,
        "writeback": writeback,
        "state_update": state_update,
        "weight_format": formats,
        "state_format": formats,
        "gradient_format": gradient_format,
        "w0": BIT_TEXTS[formats](F32(w0)),
        "gradients": [BIT_TEXTS[gradient_format](F32(g)) for g in gradients],
    }


def published(case, **expected):
    """Attaches published values: one list entry per step, None where nothing was published."""
    return case, expected


def m_plus(name, w0, w, ve=None, **keys):
    if ve is None:
        return published(make_case(name, "m_plus_adam", w0, **keys), w=w.split())
    return published(make_case(name, "m_plus_adam", w0, **keys), w=w.split(), ve=[None, None, ve])


def cycle(count):
    return [DEFAULT_GRADIENTS[i % 3] for i in range(count)]


DECAY = {"weight_decay_additive": 0.1}
SCALE = {"weight_decay_multiplicative": 0.1}
BF16_STORES = {"formats": "bf16", "gradient_format": "fp32"}
LARGE_LR = {"lr_multiplicative": 1e-2}
NO_LIMITS = {"clip_multiplicative_direction": 0.0, "clip_relative_step": 0.0}
EXPONENT = {**SCALE, "weight_decay_multiplicative_mode": "exponent"}
DIRECT = {"relative_step": "direct", "lr_multiplicative": 1e-2}
SMALL = {"lr_multiplicative": 1e-4}
PER_OP = {"formats": "bf16", "state_update": "per_op"}
KAHAN = {**DECAY, "lr_additive": 1e-5}
SMALL_STEPS = {"lr_additive": 1e-5}
KEPT = [  # name, rule, first weight, options: steps below half an ulp
    ("adamw", "adamw", 0.02, KAHAN),
    ("madam", "madam", -0.02, SMALL),
    ("lion", "lion", 0.02, KAHAN),
    ("twin", "additive_twin", 0.02, KAHAN),
    ("m+adam", "m_plus_adam", -0.02, {**KAHAN, "lr_multiplicative": 1e-6, "clip_weight": 0.0203}),
]
FED_BACK = {
    "adamw": KAHAN,
    "additive_twin": KAHAN,
    "m_plus_adam": {**KAHAN, "lr_multiplicative": 1e-6},
}
EVERYTHING = {
    **DECAY,
    **EXPONENT,
    **LARGE_LR,
    "clip_exponent_step": 0.25,
    "clip_weight": 0.051,
    "beta2": 0.98,
}

M_FP32, V_FP32 = "3a831270 3a1d4952 3a1aaa3c".split(), "36a7c5ae 36ae7bab 36a62da9".split()

PUBLISHED = [
    published(
        make_case("adamw fp32", "adamw", 0.02, options=DECAY),
        w="3c9ba1b2 3c9812e1 3c95082c".split(),
        m=M_FP32,
        v=V_FP32,
    ),
    published(
        make_case("adamw bf16", "adamw", 0.02, options=DECAY, formats="bf16"),
        w="3c9c 3c98 3c95".split(),
        w_before_rounding="3c9bcaa7 3c98738b 3c94f7c3".split(),
        m="3a83 3a1d 3a1a".split(),
        v="36a8 36af 36a7".split(),
    ),
    published(
        make_case(
            "adamw kahan",
            "adamw",
            0.02,
            options=KAHAN,
            gradients=cycle(8),
            formats="bf16",
            writeback="kahan",
        ),
        w=["3ca4"] * 8,
        c="b728 b771 b798 b7cc b7ee b807 b81e b82f".split(),
    ),
    published(
        make_case("madam, positive weight", "madam", 0.02),
        w="3ca235b3 3ca2ded4 3ca2bc48".split(),
        v="33d6bede 33e9dba2 33ea2934".split(),
    ),
    published(
        make_case("madam, negative weight", "madam", -0.02),
        w="bca57c93 bca4d0bb bca4f3b8".split(),
        v="33d6bede 33e9dba2 33ea2934".split(),
    ),
    published(
        make_case("m+adam .02", "m_plus_adam", 0.02),
        w="3c9ad431 3c979b24 3c9483c9".split(),
        m=M_FP32,
        v=V_FP32,
        ve=[None, None, "30818e51"],
    ),
    m_plus("m+adam -.02", -0.02, "bcacd9e3 bcb00a48 bcb3241d", "30842377"),
    published(
        make_case("m+adam 0", "m_plus_adam", 0.0),
        w="ba831265 baa9915d badebc96".split(),
        ve=["00000000", None, "2a7291b6"],
    ),
    m_plus("m+adam 1e-4, relative step limited", 1e-4, "ba7f9710 baa73869 badc34f0", "2a7f3ff7"),
    m_plus("m+adam 1e-9", 1e-9, "ba831263 baa9915b badebc94", "2a7291ab"),
    m_plus(
        "m+adam 5e-4, constant gradient", 5e-4, "ba1d35f0 badfd844 bb3b9291", gradients=(0.01,) * 3
    ),
    m_plus(
        "m+adam without bias correction",
        0.02,
        "3c9c8399 3c9b6449 3c990b72",
        "3081ca7b",
        options={"bias_correction": False},
    ),
    m_plus("m+adam additive decay", 0.02, "3c9acfff 3c9792f9 3c9477bd", "30818dbe", options=DECAY),
    m_plus("m+adam scale decay .02", 0.02, "3c9ad3c5 3c979a53 3c948295", "30818e43", options=SCALE),
    m_plus(
        "m+adam scale decay -.02", -0.02, "bcacd978 bcb0096c bcb322ce", "30842367", options=SCALE
    ),
    m_plus(
        "m+adam exponent decay .02",
        0.02,
        "3c9ad5a3 3c979df7 3c9487f4",
        "30818e85",
        options=EXPONENT,
    ),
    m_plus(
        "m+adam exponent decay 3", 3.0, "403fed4c 403fe634 403fdf54", "37b3a137", options=EXPONENT
    ),
    m_plus("m+adam large lr", 0.005, "39831343 36ab1750 b9bf8153", "2e6e6f7c", options=LARGE_LR),
    m_plus(
        "m+adam exponent step limited",
        0.005,
        "3b262b37 3b4ea8de 3b122f02",
        "2e7472fb",
        options={**LARGE_LR, "clip_exponent_step": 0.5},
    ),
    m_plus(
        "m+adam weight limited",
        0.005,
        "3b7f97a5 3b6563ad 3b4cc7c4",
        "2e7c7148",
        options={"clip_weight": 0.004},
    ),
    # Weight and states in bfloat16, gradients in float32.
    m_plus("m+adam bf16 .02", 0.02, "3c9b 3c98 3c95", "3081", **BF16_STORES),
    m_plus("m+adam bf16 -.02", -0.02, "bcad bcb0 bcb3", "3084", **BF16_STORES),
    m_plus("m+adam bf16 1, small lr", 1.0, "3f80 3f80 3f80", "361f", **BF16_STORES),
    m_plus(
        "m+adam bf16 1, large lr", 1.0, "3f7d 3f7e 3f7e", "361f", **BF16_STORES, options=LARGE_LR
    ),
]

# Not published: the remaining paths of the rules.
ADDITIONAL = [
    make_case("adamw padding", "adamw", 0.0, options=DECAY, gradients=(0.0,) * 3),
    make_case("adamw long", "adamw", -0.7, options=DECAY, gradients=cycle(30)),
    make_case("adamw subnormal gradient", "adamw", 1e-3, gradients=(1e-40, -3e-39, 1e-42)),
    make_case("madam zero gradient", "madam", 0.02, gradients=(0.0, 0.0, 0.01)),
    make_case("madam zero weight", "madam", 0.0),
    make_case(
        "madam weight limited",
        "madam",
        0.02,
        options={"w_max": 0.0201},
        gradients=(-0.01, -0.01, -0.003),
    ),
    make_case("m+adam padding", "m_plus_adam", 0.0, options=DECAY, gradients=(0.0,) * 3),
    make_case(
        "m+adam direction limited",
        "m_plus_adam",
        0.02,
        options={"clip_multiplicative_direction": 0.5},
    ),
    make_case("m+adam no limits", "m_plus_adam", 1e-4, options=NO_LIMITS),
    make_case("m+adam exponent decay 0", "m_plus_adam", 0.0, options=EXPONENT),
    make_case("m+adam all options", "m_plus_adam", -0.05, options=EVERYTHING, gradients=cycle(12)),
    make_case(
        "m+adam long",
        "m_plus_adam",
        0.3,
        options={**DECAY, **LARGE_LR, "beta2": 0.98},
        gradients=cycle(30),
    ),
    make_case("m+adam bf16 gradients", "m_plus_adam", 0.02, gradients=cycle(12), formats="bf16"),
    make_case(
        "m+adam kahan",
        "m_plus_adam",
        0.02,
        options={**KAHAN, "lr_multiplicative": 1e-6},
        gradients=cycle(8),
        formats="bf16",
        writeback="kahan",
    ),
    make_case(
        "m+adam kahan, weight limited",
        "m_plus_adam",
        0.02,
        options={"clip_weight": 0.0203},
        gradients=(-0.01,) * 4,
        formats="bf16",
        writeback="kahan",
    ),
    make_case(
        "madam kahan",
        "madam",
        -0.02,
        options=SMALL,
        gradients=cycle(8),
        formats="bf16",
        writeback="kahan",
    ),
    make_case(
        "madam kahan, weight limited",
        "madam",
        0.02,
        options={"w_max": 0.0203},
        gradients=(-0.01,) * 4,
        formats="bf16",
        writeback="kahan",
    ),
    make_case(
        "adamw kahan per_op",
        "adamw",
        0.02,
        options={**KAHAN, "kahan_variant": "per_op"},
        gradients=cycle(8),
        formats="bf16",
        writeback="kahan",
        state_update="per_op",
    ),
    make_case(
        "adamw kahan per_op, states once",
        "adamw",
        -0.7,
        options={**DECAY, "kahan_variant": "per_op"},
        gradients=cycle(8),
        formats="bf16",
        writeback="kahan",
    ),
    make_case("adamw states per_op", "adamw", 0.02, options=DECAY, gradients=cycle(8), **PER_OP),
    make_case("madam states per_op", "madam", 0.02, gradients=cycle(8), **PER_OP),
    make_case("twin", "additive_twin", 0.02),
    make_case(
        "twin long",
        "additive_twin",
        -0.7,
        options={**DECAY, "gradient_ratio": 1.7},
        gradients=cycle(30),
    ),
    make_case("twin padding", "additive_twin", 0.0, options=DECAY, gradients=(0.0,) * 3),
    make_case(
        "twin without gradient", "additive_twin", 0.02, options={"gradient_ratio": 0.0}
    ),  # AdamW
    make_case(
        "twin bf16", "additive_twin", 0.02, options=DECAY, gradients=cycle(8), formats="bf16"
    ),
    make_case(
        "twin kahan",
        "additive_twin",
        0.02,
        options=KAHAN,
        gradients=cycle(8),
        formats="bf16",
        writeback="kahan",
    ),
    make_case("twin states per_op", "additive_twin", 0.02, gradients=cycle(8), **PER_OP),
    make_case("m+adam direct", "m_plus_adam", 0.02, options=DIRECT),
    make_case(
        "m+adam direct, all options",
        "m_plus_adam",
        -0.05,
        options={**EVERYTHING, **DIRECT},
        gradients=cycle(12),
    ),
    *(
        make_case(
            f"{name} {writeback}",
            rule,
            w0,
            options=options,
            gradients=cycle(12),
            formats="bf16",
            writeback=writeback,
        )
        for writeback in ("remainder", "ulp_residual", "master")
        for name, rule, w0, options in KEPT
    ),
    make_case(
        "adamw remainder, ties",
        "adamw",
        1.0,
        options={"lr_additive": 2.0**-9, "beta1": 0.0, "beta2": 0.0, "eps": 1e-30},
        gradients=(1.0, -1.0, -1.0, -1.0, -1.0, 1.0),
        formats="bf16",
        writeback="remainder",
    ),
    make_case(
        "adamw ulp_residual, small weight",
        "adamw",
        1e-33,
        options={**SMALL_STEPS, "lr_additive": 1e-36},
        gradients=cycle(6),
        formats="bf16",
        writeback="ulp_residual",
    ),
    *(
        make_case(
            f"{rule} fed back, {formats}",
            rule,
            0.02,
            options={**options, "error_feedback": "momentum"},
            gradients=cycle(12),
            formats=formats,
            gradient_format="fp32",
        )
        for formats in ("bf16", "fp32")
        for rule, options in FED_BACK.items()
    ),
    make_case(
        "adamw fed back, states per_op",
        "adamw",
        0.02,
        options={**KAHAN, "error_feedback": "momentum"},
        gradients=cycle(8),
        **PER_OP,
    ),
    make_case(
        "adamw fed back, without bias correction",
        "adamw",
        -0.7,
        options={**KAHAN, "error_feedback": "momentum", "bias_correction": False},
        gradients=cycle(8),
        formats="bf16",
    ),
    make_case("lion", "lion", 0.02),
    make_case("lion long", "lion", -0.7, options=DECAY, gradients=cycle(30)),
    make_case("lion padding", "lion", 0.0, options=DECAY, gradients=(0.0,) * 3),
    make_case(
        "lion, sign of the mean before it is updated", "lion", 0.02, gradients=(0.01, -0.00095, 0.0)
    ),
    make_case("lion bf16", "lion", 0.02, options=DECAY, gradients=cycle(8), formats="bf16"),
    make_case(
        "lion kahan",
        "lion",
        0.02,
        options=KAHAN,
        gradients=cycle(8),
        formats="bf16",
        writeback="kahan",
    ),
    make_case("lion states per_op", "lion", 0.02, options=DECAY, gradients=cycle(8), **PER_OP),
    make_case(
        "m+adam states per_op", "m_plus_adam", 0.02, options=DECAY, gradients=cycle(8), **PER_OP
    ),
]


def disagreements(case, expected):
    """Returns texts that name each value that differs from the published one."""
    texts = []
    for key, values in expected.items():
        if len(values) != len(case["steps"]):
            texts.append(
                f"{case['name']}: {len(values)} published values of {key} for {len(case['steps'])}"
                " steps"
            )
        for t, (value, found) in enumerate(zip(values, case["steps"]), 1):
            if value is not None and found[key] != value:
                texts.append(f"{case['name']}: {key} at t={t} is {found[key]}, published {value}")
    return texts


def constants():
    """Checks the bias corrections in AdamW's table and the two limits of the relative step."""
    return {
        "c1": [hex32(correction(0.9, t, True)) for t in (1, 2, 3)],
        "c2": [hex32(correction(0.95, t, True)) for t in (1, 2, 3)],
        "one_minus_beta1": hex32(F32(1) - F32(0.9)),
        "clip_relative_step_low": hex32(-(F32(0.75) - F32(1e-6))),
        "clip_exponent_step_half": [hex32(F32(2.0**-0.5 - 1)), hex32(F32(2.0**0.5 - 1))],
    }


PUBLISHED_CONSTANTS = {
    "c1": "3dccccd0 3e428f5f 3e8ac085".split(),
    "c2": "3d4cccd0 3dc7ae18 3e120c4c".split(),
    "one_minus_beta1": "3dccccd0",
    "clip_relative_step_low": "bf3fffef",
    "clip_exponent_step_half": ["be95f61a", "3ed413cd"],
}


def fresh(rule, w, g, **options):
    """Returns w' of the first step."""
    return RULES[rule](w, g, new_state(rule), {**DEFAULTS[rule], **options}, 1)


def check_properties(count):
    """Checks P1-P4 and P6-P7 on random weights and gradients over many binades, and P5 along random
    gradient sequences.
    """
    generator = np.random.default_rng(7)
    magnitudes = np.exp2(generator.uniform(-20, 2, (count, 2)))
    pairs = (magnitudes * generator.choice([-1, 1], (count, 2))).astype(np.float32)
    for w, g in pairs:
        check_property_pair(w, g)
    for beta2 in (0.95, 0.98, 0.99, 0.999):
        check_direction_bound(beta2, generator)
    assert hex32(fresh("m_plus_adam", F32(0), F32(0))) == "00000000", "P4 padding"


def check_property_pair(w, g):
    moved = fresh("m_plus_adam", w, g)
    assert (float(moved) - float(w)) * float(g) < 0 or moved == w, f"P1 {w} {g}"
    assert hex32(fresh("m_plus_adam", -w, -g)) == hex32(-moved), f"P2 {w} {g}"
    scaled = fresh("m_plus_adam", w, g, lr_additive=0.0, lr_multiplicative=1e-2)
    within = (
        F32(0.25) * abs(w) <= abs(scaled) <= F32(1.75) * abs(w)
    )  # the upper limit rounded to float32
    assert within and scaled * w > 0, f"P3 {w} {g}"
    state = new_state("m_plus_adam")
    zero = RULES["m_plus_adam"](F32(0), g, state, DEFAULTS["m_plus_adam"], 1)
    assert zero == fresh("adamw", F32(0), g) and state["ve"] == 0, f"P4 {g}"
    assert abs(float(scaled) - float(w)) <= 1e-2 * (1 + 1e-4), f"P6 {w} {g}"
    plain = fresh("m_plus_adam", w, g, lr_multiplicative=0.0, weight_decay_additive=0.1)
    assert hex32(plain) == hex32(fresh("adamw", w, g, weight_decay_additive=0.1)), f"P7 {w} {g}"


def check_direction_bound(beta2, generator):
    """P5: |n| <= sqrt((1 - beta2^t) / (1 - beta2)), nearly reached by one large gradient after
    small ones.
    """
    v, largest = F32(0), 0.0
    for t in range(1, 400):
        x = F32(1e3 if t == 399 else abs(generator.standard_normal()) * 1e-3)
        v = ema_square(F32(beta2), v, x, {})
        n = float(x / np.sqrt(v / correction(beta2, t, True)))
        bound = math.sqrt((1 - beta2**t) / (1 - beta2))
        assert n <= bound * (1 + 1e-5), f"P5 beta2 {beta2} t {t}"
        largest = max(largest, n / bound)
    assert largest > 0.999, f"P5 beta2 {beta2} is not tight: {largest}"


def main():
    np.seterr(under="ignore")
    cases, wrong = [], []
    for case, expected in PUBLISHED:
        wrong += disagreements(run(case), expected)
        cases.append(case)
    if constants() != PUBLISHED_CONSTANTS:
        wrong.append(f"constants {constants()}, published {PUBLISHED_CONSTANTS}")
    if wrong:
        sys.exit("\n".join(wrong))
    check_properties(300)
    cases += [run(case) for case in ADDITIONAL]
    content = {"constants": constants(), "cases": cases}
    (FOLDER / "optimizer_golden.json").write_text(json.dumps(content, indent=1) + "\n")
    compared = sum(
        value is not None
        for _, expected in PUBLISHED
        for values in expected.values()
        for value in values
    )
    print(f"{compared} published values reproduced, {len(cases)} cases written")


if __name__ == "__main__":
    main()
