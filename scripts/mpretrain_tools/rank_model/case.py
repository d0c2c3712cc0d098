"""What is trained, in which formats, by how many ranks: shapes, batches, regimes, optimizers."""

import dataclasses
import functools
import json
import re

from ..repository import CONFIGS

SIZE = {"fp32": 4, "bf16": 2, "fp16": 2, "fp64": 8, "i32": 4, "u8": 1, "e4m3": 1, "e5m2": 1}
UNIT = 256  # elements
PIECE_UNITS = 16  # between two places where a tensor may be cut


def ceil_div(n, by):
    return -(-n // by)


def align_up(n, multiple):
    return ceil_div(n, multiple) * multiple


@dataclasses.dataclass(frozen=True)
class Shape:
    hidden: int
    intermediate: int
    layers: int
    heads: int
    vocab: int

    @property
    def stored_intermediate(self):
        return align_up(self.intermediate, 16)

    @property
    def groups(self):
        return self.layers + 2

    @property
    def layer_products(self):
        return 4 * self.hidden**2 + 3 * self.hidden * self.intermediate

    @property
    def parameters(self):
        return (
            2 * self.vocab * self.hidden
            + self.layers * self.layer_products
            + (2 * self.layers + 1) * self.hidden
        )


@dataclasses.dataclass(frozen=True)
class Spec:
    """A parameter: logical and stored shape, and how many neighbours from it on are one matrix."""

    kind: str
    rows: int
    cols: int
    stored_rows: int
    stored_cols: int
    fused: int = 1

    @functools.cached_property
    def per_row(self):
        return ceil_div(self.cols, UNIT)

    @property
    def units(self):
        return self.rows * self.per_row


def matrix(kind, rows, cols, stored_rows=None, stored_cols=None, fused=1):
    return Spec(kind, rows, cols, stored_rows or rows, stored_cols or cols, fused)


@functools.cache
def parameter_groups(shape):
    """The parameters of every group: embedding, layers, final norm and head."""
    c, f, stored = shape.hidden, shape.intermediate, shape.stored_intermediate
    linear = functools.partial(matrix, "linear")
    layer = [
        matrix("norm", 1, c),
        linear(c, c, fused=3),
        linear(c, c),
        linear(c, c),
        linear(c, c),
        matrix("norm", 1, c),
        linear(f, c, stored_rows=stored, fused=2),
        linear(f, c, stored_rows=stored),
        linear(c, f, stored_cols=stored),
    ]
    return [
        [matrix("embedding", shape.vocab, c)],
        *([layer] * shape.layers),
        [matrix("norm", 1, c), matrix("head", shape.vocab, c)],
    ]


def read_config(path):
    """A file of configs/base; // comments are whole lines or follow a value."""
    text = "\n".join(
        re.sub(r"(^|\s)//.*$", "", line) for line in path.read_text(encoding="utf-8").splitlines()
    )
    return json.loads(text)


@dataclasses.dataclass(frozen=True)
class Batch:
    seq_len: int
    rows: int  # of a step
    micro_batch_rows: int
    recompute: bool


def from_config(name):
    config = read_config(CONFIGS / "base" / f"{name}.json")
    m, b = config["model"], config["batch"]
    rows = b["tokens_per_step"] // b["seq_len"]
    shape = Shape(
        m["hidden_size"],
        m["intermediate_size"],
        m["num_hidden_layers"],
        m["num_attention_heads"],
        m["vocab_size"],
    )
    recompute = config["train"].get("activation_recompute") == "block"
    return shape, Batch(b["seq_len"], rows, b.get("micro_batch_rows") or rows, recompute)


# LLaMA's 7B and 13B, and the widths of LLaMA 2 70B with as many keys as queries, which is what this
# program trains: 78 G parameters. About 4 M tokens a step, as LLaMA was trained.
LARGE = {
    "7b": (Shape(4096, 11008, 32, 32, 32000), Batch(2048, 2048, 1, True)),
    "13b": (Shape(5120, 13824, 40, 40, 32000), Batch(2048, 2048, 1, True)),
    "70b": (Shape(8192, 28672, 80, 64, 32000), Batch(4096, 1024, 1, True)),
}
SMALL = ["pico", "nano", "60m", "130m", "350m", "1b"]


def model(name):
    return LARGE[name] if name in LARGE else from_config(name)


@dataclasses.dataclass(frozen=True)
class Regime:
    """precision.weights, .compute, .optimizer_state and .gradient."""

    weights: str
    compute: str
    state: str = "bf16"
    gradient: str = "bf16"

    @property
    def storage(self):
        return "fp32" if self.compute == "fp32" else "bf16"

    def weights_of(self, kind):
        if kind == "linear":
            return self.weights
        return "fp32" if self.weights == "fp32" else "bf16"


REGIMES = {
    "fp32": Regime("fp32", "fp32", "fp32", "fp32"),
    "bf16": Regime("bf16", "bf16"),
    "bf16_fp8": Regime("bf16", "fp8"),
    "fp8": Regime("block_fp8", "fp8"),
    "nvfp4": Regime("nvfp4", "fp8"),
}
# Moments of a dense tensor, and what Kahan compensation adds.
OPTIMIZERS = {
    "adamw": (2, 0),
    "m_plus_adam": (3, 0),
    "adamw_kahan": (2, 1),
    "kahan": (3, 1),
    "apollo_e": (3, 0),
}
APOLLO_RANK = 4
FP8_HISTORY = 1024


@dataclasses.dataclass(frozen=True)
class Case:
    """A run as one of its ranks sees it."""

    shape: Shape
    batch: Batch
    regime: Regime
    optimizer: str = "m_plus_adam"
    ranks: int = 1
    gradient_reduce: str = "fp32"
    bucket_mib: int = 32
    sharded: bool = True
    backend: str = "cuda"
    threads: int = 1  # of a CPU

    @property
    def alone(self):
        return self.ranks == 1

    @property
    def rows_of_most(self):
        return ceil_div(self.batch.rows, self.ranks)

    @property
    def micro_batch_rows(self):
        return min(self.batch.micro_batch_rows, self.rows_of_most)

    @property
    def micro_batches(self):
        return ceil_div(self.rows_of_most, self.micro_batch_rows)

    @property
    def tokens(self):
        """Of a micro-batch."""
        return self.micro_batch_rows * self.batch.seq_len

    @property
    def loss_chunk(self):
        logits = (256 if self.backend == "cuda" else 16) << 20
        return min(max(logits // self.shape.vocab // 16, 1) * 16, self.tokens)

    @property
    def groups(self):
        return parameter_groups(self.shape)

    @property
    def specs(self):
        return [spec for group in self.groups for spec in group]

    def projected(self, spec):
        return self.optimizer == "apollo_e" and spec.kind == "linear"

    def gradient_container(self, kind):
        """The type of a gradient's memory: FP32 where several additions meet in it."""
        additions = self.micro_batches * (
            self.ranks if not self.alone and self.gradient_reduce == "fp32" else 1
        )
        if kind == "head":
            additions *= ceil_div(self.tokens, self.loss_chunk)
        return "bf16" if self.regime.gradient == "bf16" and additions == 1 else "fp32"
