"""Rows of the paper's tables: what is trained, with which configuration, and what the paper prints
for it.
"""

import functools
from dataclasses import dataclass, field

from .. import repository
from ..sweeps import configuration

SIZES = ("60m", "130m", "350m", "1b")  # of the paper
SCALES = ("pico", "nano", *SIZES)
BUDGETS = (1, 2, 4, 8)  # multiples of 20 tokens a parameter


@dataclass(frozen=True)
class Row:
    """A regime and an optimizer; `config` is a file of configs/ without its size."""

    regime: str  # weights / compute
    optimizer: str
    config: str
    paper: tuple = ()  # perplexity at 1x by SIZES, () where the paper has no such row
    changes: dict = field(default_factory=dict, hash=False, compare=False)
    tuned_as: str = ""  # the row whose tuned values it takes, where they are not its own

    @property
    def key(self):
        return "_".join([self.config, *map(str, self.changes.values())])

    @property
    def label(self):
        return f"{self.optimizer}, {self.regime}"

    @property
    def rule(self):
        """Of its update, as its configuration has it at every scale."""
        return self.changes.get("optimizer.rule") or _rule_of(self.config)

    def file(self, scale):
        return f"{scale}_{self.config}.json"


@functools.cache
def _rule_of(config):
    files = [repository.CONFIGS / f"{scale}_{config}.json" for scale in SCALES]
    found = next((path for path in files if path.exists()), files[0])
    return configuration.get_key(configuration.load(found), "optimizer.rule")


MAIN = (
    Row("FP32/TF32", "AdamW", "fp32_adamw", (29.047, 22.615, 15.955, 14.011)),
    Row("BF16/BF16", "AdamW", "bf16_adamw", (29.865, 23.587, 19.156, 15.642)),
    Row("BF16/BF16", "AdamW + Kahan", "bf16_adamw_kahan", (29.275, 22.859, 18.758, 14.854)),
    Row("BF16/BF16", "AdamW + SR", "bf16_adamw_sr", (29.277, 22.646, 18.720, 14.346)),
    Row("BF16/BF16", "M+Adam", "bf16", (29.035, 22.032, 16.607, 14.139)),
    Row("BF16/FP8", "AdamW", "bf16_fp8_adamw", (30.151, 23.594, 19.234, 16.346)),
    Row("BF16/FP8", "M+Adam", "bf16_fp8", (29.201, 22.136, 17.905, 15.690)),
    Row("FP8/FP8", "AdamW", "fp8_adamw", (31.560, 24.966, 21.674, 17.235)),
    Row("FP8/FP8", "M+Adam", "fp8", (30.484, 24.284, 19.395, 16.712)),
    Row("NVFP4/FP8", "AdamW", "nvfp4_adamw", (33.884, 27.517, 24.941, 19.066)),
    Row("NVFP4/FP8", "M+Adam", "nvfp4", (30.948, 25.511, 20.796, 17.692)),
)

FP16_SCALES = {"precision.fp8_scale_mode": "fp16"}
LIVE_SCALES = {"precision.nvfp4_scale_mode": "live"}
# What the paper leaves open or does not combine.
EXTRA = (
    Row("BF16/BF16", "M+Adam + Kahan", "bf16_kahan", tuned_as="bf16"),
    Row("BF16/BF16", "M+Adam + SR", "bf16_sr", tuned_as="bf16"),
    Row("FP8/FP8, fp16 scales", "AdamW", "fp8_adamw", changes=FP16_SCALES, tuned_as="fp8_adamw"),
    Row("FP8/FP8, fp16 scales", "M+Adam", "fp8", changes=FP16_SCALES, tuned_as="fp8"),
    Row(
        "NVFP4/FP8, live scales",
        "AdamW",
        "nvfp4_adamw",
        changes=LIVE_SCALES,
        tuned_as="nvfp4_adamw",
    ),
    Row("NVFP4/FP8, live scales", "M+Adam", "nvfp4", changes=LIVE_SCALES, tuned_as="nvfp4"),
)

BY_KEY = {row.key: row for row in MAIN + EXTRA}


def paper_size(scale):
    """The size of the paper's that ours stands beside: the same, else the smallest."""
    return scale if scale in SIZES else SIZES[0]
