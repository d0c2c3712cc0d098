"""What the CPU step is held to, as bounds on ratios (ratios.py), and which of them a measurement
reaches.
"""

import re
import statistics
import typing


class Goal(typing.NamedTuple):
    """The first group of the pattern is what `least` is by, where it differs."""

    text: str
    pattern: str  # of names of ratios
    least: object = None  # a number, or {first group: number}
    most: float | None = None


SHAPE = r"([A-E])"
GOALS = [
    Goal("FP32 step against its bound, %", rf"bound: {SHAPE}/fp32/adamw %bound", 92),
    Goal(
        "OpenBLAS's time for the GEMMs of a step over ours",
        rf"bound: {SHAPE}/.* x_gemms_of_openblas",
        1.0,
    ),
    Goal(
        "tokens/s over tuned PyTorch's",
        rf"peers: {SHAPE} ours_fp32 / pytorch_tuned",
        {"A": 1.12, "B": 1.28, "C": 1.06, "D": 1.12, "E": 1.15},
    ),
    Goal(
        "tokens/s over installed PyTorch's", rf"peers: {SHAPE} ours_fp32 / pytorch_installed", 2.2
    ),
    Goal("tokens/s over PyTorch 2's at its best", rf"peers: {SHAPE} ours_fp32 / pytorch2", 1.05),
    Goal(
        "BF16 step's tokens/s over PyTorch 2's best in BF16",
        rf"peers: {SHAPE} ours_bf16 / pytorch2_bf16",
        1.1,
    ),
    Goal(
        "peak memory of tuned PyTorch over ours",
        rf"peers: {SHAPE} memory of pytorch_tuned / ours",
        {"A": 2, "B": 2, "C": 3, "D": 3, "E": 3},
    ),
    Goal("peak memory over that of `mpretrain plan`", rf"peers: {SHAPE} peak / plan", 0.95, 1.05),
    Goal("BF16/BF16 over FP32, tokens/s", rf"step: {SHAPE}/bf16/adamw / .*", 0.85),
    Goal(
        "FP8 and NVFP4 over FP32, tokens/s",
        rf"step: {SHAPE}/(?:block_fp8|nvfp4|bf16-fp8)[^/]*/adamw / .*",
        0.60,
    ),
    Goal(
        "M+Adam over AdamW, tokens/s",
        rf"step: {SHAPE}/[^/]+/m_plus_adam for its optimizer / .*",
        0.99,
    ),
    Goal(
        "optimizer against streaming bandwidth, %",
        r"update: update/(?:adamw|m_plus_adam)/[^/]+/nearest %limit",
        80,
    ),
    Goal(
        "attention of 1024 tokens against the FMA peak, %",
        r"ops: attention[^/]*/[BDE]/.* %limit",
        50,
    ),
    Goal("tokenizer, 2 threads over 1", r"data: tokenize/2 x_one_thread", 1.8),
    Goal(
        "tokenizer in one thread over SentencePiece's own", r"data: tokenize/1 x_sentencepiece", 1.0
    ),
    Goal("loader waited for, % of step time", r"profile: .* %wait", most=0.5),
]


class Outcome(typing.NamedTuple):
    goal: Goal
    name: str  # of the ratio; empty where none was measured
    values: list
    least: float | None = None

    @property
    def reached(self):
        """None where nothing was measured."""
        if not self.values:
            return None
        middle = statistics.median(self.values)
        return (self.least is None or middle >= self.least) and (
            self.goal.most is None or middle <= self.goal.most
        )

    @property
    def wanted(self):
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (("at least", self.least), ("at most", self.goal.most))
            if bound is not None
        ]
        return ", ".join(bounds) if self.values else ""


def outcome(goal, match, values):
    least = goal.least[match[1]] if isinstance(goal.least, dict) else goal.least
    return Outcome(goal, match[0], values, least)


def outcomes(ratios):
    """One for each ratio that a goal is about, in the order of the goals."""
    found = []
    for goal in GOALS:
        matches = [match for name in ratios if (match := re.fullmatch(goal.pattern, name))]
        found += [outcome(goal, match, ratios[match[0]]) for match in matches] or [
            Outcome(goal, "", [])
        ]
    return found
