"""What is trained, in which formats, by how many ranks: shapes, batches, regimes, optimizers."""

import dataclasses
import functools

from ..repository import CONFIGS
from ..sweeps import configuration
from .counted import count

SIZE = {"fp32": 4, "bf16": 2}


@dataclasses.dataclass(frozen=True)
class Shape:
    hidden: int
    intermediate: int
    layers: int
    heads: int
    vocab: int

    @property
    def stored_intermediate(self):
        """With the zeros that FP8 GEMMs need."""
        return -(-self.intermediate // 16) * 16

    @property
    def layer_weights(self):
        return 4 * self.hidden**2 + 3 * self.hidden * self.intermediate

    @property
    def kinds(self):
        """Parameters by kind. Embedding and head are two tensors."""
        return {
            "embedding": self.vocab * self.hidden,
            "head": self.vocab * self.hidden,
            "linear": self.layers * self.layer_weights,
            "norm": (2 * self.layers + 1) * self.hidden,
        }

    @property
    def parameters(self):
        return sum(self.kinds.values())


@dataclasses.dataclass(frozen=True)
class Batch:
    seq_len: int
    rows: int  # of a step
    micro_batch_rows: int
    recompute: bool


# Rows of a micro-batch in the tables of docs/scaling.md, which must not depend on the memory of the
# machine that makes them; where a size has none, whole steps.
MICRO_BATCH_ROWS = {"60m": 8, "130m": 8, "350m": 4, "1b": 2}


def from_config(name):
    config = configuration.load(CONFIGS / "base" / f"{name}.json")
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
    return shape, Batch(b["seq_len"], rows, MICRO_BATCH_ROWS.get(name, rows), recompute)


# LLaMA's 7B and 13B, and the widths of LLaMA 2 70B, here with as many heads of keys as of queries:
# 78 G parameters. About 4 M tokens a step, as LLaMA was trained.
LARGE = {
    "7b": (Shape(4096, 11008, 32, 32, 32000), Batch(2048, 2048, 1, True)),
    "13b": (Shape(5120, 13824, 40, 40, 32000), Batch(2048, 2048, 1, True)),
    "70b": (Shape(8192, 28672, 80, 64, 32000), Batch(4096, 1024, 1, True)),
}
SMALL = ["pico", "nano", "60m", "130m", "350m", "1b"]


def model(name):
    return LARGE[name] if name in LARGE else from_config(name)


# The format of GEMMs by regime. Regime and optimizer name a file of configs/.
COMPUTE = {"fp32": "fp32", "bf16": "bf16", "bf16_fp8": "fp8", "fp8": "fp8", "nvfp4": "fp8"}
OPTIMIZERS = ["m_plus_adam", "adamw", "adamw_kahan", "kahan", "apollo_e"]


@dataclasses.dataclass(frozen=True)
class Case:
    """A run as one of its ranks sees it, and the program that counts what it takes."""

    program: str
    shape: Shape
    batch: Batch
    regime: str
    optimizer: str = "m_plus_adam"
    ranks: int = 1
    gradient_reduce: str = "fp32"
    bucket_mib: int = 32
    backend: str = "cuda"

    @property
    def config(self):
        """The nano model in these formats, of which all sizes are taken from shape and batch."""
        optimizer = "" if self.optimizer == "m_plus_adam" else f"_{self.optimizer}"
        return f"nano_{self.regime}{optimizer}.json"

    @property
    def has_cudnn(self):
        """Whether cuDNN computes attention, which it does in BF16 and less."""
        return self.backend == "cuda" and COMPUTE[self.regime] != "fp32"

    @property
    def settings(self):
        shape, batch = self.shape, self.batch
        return {
            # Attention by GEMMs needs more memory: a program without cuDNN is to refuse this.
            **({"device.cuda_attention": "cudnn"} if self.has_cudnn else {}),
            "model.hidden_size": shape.hidden,
            "model.intermediate_size": shape.intermediate,
            "model.num_hidden_layers": shape.layers,
            "model.num_attention_heads": shape.heads,
            "model.vocab_size": shape.vocab,
            "batch.seq_len": batch.seq_len,
            "batch.tokens_per_step": batch.rows * batch.seq_len,
            "batch.micro_batch_rows": batch.micro_batch_rows,
            "train.activation_recompute": "block" if batch.recompute else "none",
            "distributed.gradient_reduce": self.gradient_reduce,
            "distributed.bucket_mib": self.bucket_mib,
            "device.type": self.backend,
        }

    @functools.cached_property
    def counted(self):
        """What `mpretrain plan` counts of it."""
        settings = tuple(f"{key}={value}" for key, value in self.settings.items())
        return count(self.program, self.config, self.ranks, settings)

    @property
    def alone(self):
        return self.ranks == 1

    @property
    def fits_the_batch(self):
        """A rank without a row is refused."""
        return self.ranks <= self.batch.rows

    @property
    def in_fp8(self):
        return COMPUTE[self.regime] == "fp8"

    @property
    def casts_for_use(self):
        """Whether weights are cast before each GEMM, as on a GPU, or once a step."""
        return self.in_fp8 and self.backend == "cuda"

    @property
    def tokens(self):
        """Of a micro-batch."""
        return self.counted.micro_batch_rows * self.batch.seq_len

    @property
    def stored_bytes_a_parameter(self):
        return self.counted.stored_bytes / self.shape.parameters

    @property
    def gradient_bytes_a_parameter(self):
        """In the memory in which several additions may meet."""
        return self.counted.memory["gradients"] / self.shape.parameters
