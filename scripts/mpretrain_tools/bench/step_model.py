"""Predicts how long a training step takes on an H200: what `mpretrain plan --json` counts of it,
over assumed rates. Where one was measured, its `why` says so.
"""

import dataclasses
import functools
import itertools
import math
import types
import typing

from .. import machines
from ..sweeps.plan import plan

SIZES = ("60m", "130m", "350m", "1b")
REGIMES = ("bf16", "fp8", "nvfp4")
ROWS = 4  # of the micro-batches that are planned, and scaled from
# The same counts by programs with and without CUDA, on any machine, as gpu_report trains.
OVERRIDES = ("device.type=cpu", f"batch.micro_batch_rows={ROWS}", "train.activation_recompute=none")
FP8_OVERRIDES = ("device.fp8_weight_codes=one_layer",)
CROSS_ENTROPY = "loss/cross entropy"
WIDE = 1024  # terms from which results of dW are large enough for the faster rate


class Assumption(typing.NamedTuple):
    what: str
    unit: str
    value: float | dict  # a dict: by terms of a sum, or by width of the model
    why: str


def assumed():
    """{name: Assumption}; JSON has no numbers for keys."""
    for name, of in machines.figures("H200").items():
        value = of["value"]
        if isinstance(value, dict):
            value = {int(terms): rate for terms, rate in value.items()}
        yield name, Assumption(**{**of, "value": value})


ASSUMED = dict(assumed())


# Milliseconds of a step as on an H200, docs/benchmarks/gpu.md.
MEASURED = {("350m", "bf16"): 582.7, ("1b", "bf16"): 1838.9, ("1b", "fp8"): 1330.1}


def assumptions():
    return types.SimpleNamespace(**{name: of.value for name, of in ASSUMED.items()})


def changed(these, name, factor):
    value = getattr(these, name)
    new = {k: v * factor for k, v in value.items()} if isinstance(value, dict) else value * factor
    return types.SimpleNamespace(**{**vars(these), name: new})


def bytes_of(one):
    """What an operation of `plan --json` reads and writes, a token of all its calls."""
    return one["read_bytes"] + one["written_bytes"] + one["transposed_bytes"]


def at(rates, terms):
    """Rate of a sum of so many terms, linear in their logarithm between known ones."""
    known = sorted(rates)
    terms = min(max(terms, known[0]), known[-1])
    for low, high in itertools.pairwise(known):
        if terms <= high:
            share = (math.log(terms) - math.log(low)) / (math.log(high) - math.log(low))
            return rates[low] + share * (rates[high] - rates[low])
    return rates[known[-1]]


def by_width(rates, width):
    """One rate below WIDE, another from there on."""
    return rates[WIDE] if width >= WIDE else min(rates[k] for k in rates if k < WIDE)


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of a size in a regime. `rows`: of a micro-batch; None: as many as the memory holds."""

    program: str
    size: str
    regime: str
    rows: int | None = None
    codes: str = "one_layer"  # of weights, as device.fp8_weight_codes calls it

    @functools.cached_property
    def plan(self):
        more = () if self.regime == "bf16" else FP8_OVERRIDES
        return plan(self.program, f"{self.size}_{self.regime}.json", *OVERRIDES, *more)

    @functools.cached_property
    def work(self):
        return self.plan["work"]

    @property
    def tokens(self):
        return round(self.plan["flops_per_step"] / self.plan["flops_per_token"])

    @property
    def width(self):
        """C: the terms of y of the first linear layer."""
        return self.work["gemms"][0]["inner"]

    @property
    def layers(self):
        return self.work["gemms"][0]["calls"]

    def memory(self, rows):
        """Planned bytes, those of activations and scratch in proportion to the rows."""
        planned = self.plan["allocated_bytes"]
        of_rows = planned["activations"] + planned["scratch"]
        return planned["total"] + of_rows * (rows / ROWS - 1)

    def micro_batches(self, a):
        step = self.plan["rows"]["step"]
        rows = self.rows or next(
            (r for r in range(step, 0, -1)
             if step % r == 0 and self.memory(r) <= a.memory * 1e9), 1,
        )  # fmt: skip
        return -(-step // rows)

    # --- parts, in seconds ------------------------------------------------------------------------

    def parts(self, a):
        """{part: seconds}."""
        m = self.micro_batches(a)
        tera = 1e12
        passes = {True: 0.0, False: 0.0}
        for one in self.work["passes"]:
            passes[one["operation"] == CROSS_ENTROPY] += self.pass_seconds(a, one)
        attention = self.work["attention_flops"]
        return {
            "GEMMs": self.gemm_seconds(a, of_head=False),
            "head": self.gemm_seconds(a, of_head=True),
            "attention forward": attention["forward"] * self.tokens / (a.attention_forward * tera),
            "attention backward": attention["backward"]
            * self.tokens
            / (a.attention_backward * tera),
            "passes, casts": passes[False],
            "cross entropy": passes[True],
            "sums of gradients": self.summed_bytes(m) / (a.passes * tera),
            "norm, update": self.update_bytes(m) / (a.update * tera),
            "weights to FP8": self.recast_seconds(a, m),
            "gaps, host": self.kernels(a, m) * a.gap * 1e-6 + a.host * 1e-3,
        }

    def pass_seconds(self, a, one):
        rate = a.cross_entropy if one["operation"] == CROSS_ENTROPY else a.passes
        return bytes_of(one) * self.tokens / (rate * 1e12)

    def gemm_seconds(self, a, of_head):
        return sum(
            gemm["flops"] * self.tokens / (self.rate(a, gemm) * 1e12)
            for gemm in self.work["gemms"]
            if (gemm["linear"] == "lm_head") == of_head
        )

    def rate(self, a, gemm):
        fp8 = gemm["format"] == "fp8"
        if gemm["linear"] == "lm_head" and not fp8:
            return by_width(a.head, self.width)
        if gemm["product"] == "dW":
            return by_width(a.fp8_dw if fp8 else a.bf16_dw, self.width)
        rate = at(a.fp8_gemm if fp8 else a.bf16_gemm, gemm["inner"])
        return rate * a.fp8_split if fp8 and gemm["product"] == "dx" else rate

    def summed_bytes(self, m):
        """Of several micro-batches: each but the first adds to FP32 sums, which are rounded."""
        return self.plan["parameters"] * (8 * (m - 1) + 8 if m > 1 else 0)

    def update_bytes(self, m):
        """Weights and states read and written, gradients read for the norm and for the update."""
        nominal = self.plan["nominal_bytes_per_parameter"]
        gradient = 4 if m > 1 else nominal["gradient"]
        stored = nominal["weights"] + nominal["optimizer_state"]
        return self.plan["parameters"] * (2 * stored + 2 * gradient)

    def recast_seconds(self, a, m):
        """With codes of one layer a micro-batch casts rows in forward and columns in backward, and
        the largest weight is looked for beforehand; with those of all layers both are written once.
        """
        of = self.work["weights"]
        read, both = of["read_bytes"], of["written_bytes"] + of["transposed_bytes"]
        times = m if of["each_micro_batch"] else 1
        if self.codes == "all_layers":
            return times * (read + both) / (a.recast * 1e12)
        return (times * read + m * (2 * read + both)) / (a.recast * 1e12)

    def kernels(self, a, m):
        calls = sum(one["calls"] for one in [*self.work["passes"], *self.work["gemms"]])
        calls += 2 * self.layers  # attention
        scales = a.scale_kernels * 7 * self.layers if self.regime == "nvfp4" else 0
        return m * calls * a.kernels + a.other_kernels + scales

    # --- what comes of them -----------------------------------------------------------------------

    def seconds(self, a):
        return sum(self.parts(a).values())

    def percent(self, a):
        """Of the BF16 rate, as gpu_report counts it."""
        return 100 * self.plan["flops_per_step"] / self.seconds(a) / (a.bf16_peak * 1e12)


def over_bf16(step, a):
    """Tokens per second over those of the same size in BF16."""
    return dataclasses.replace(step, regime="bf16").seconds(a) / step.seconds(a)
