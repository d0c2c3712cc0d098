"""The models that are measured, as in bench/step_bench.cpp, and configurations of the program for
them.
"""

import json
import pathlib
import struct
import typing

from ..repository import CONFIGS

BASE = CONFIGS / "base"


class Shape(typing.NamedTuple):
    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocab: int
    batch: int
    length: int

    @property
    def tokens(self):
        """Of a step."""
        return self.batch * self.length

    @property
    def flops_per_token(self):
        """6 N_gemms + 6 L C T, as src/train/reports/gemm_rate.h counts them."""
        layer = 4 * self.hidden**2 + 3 * self.hidden * self.intermediate
        gemms = self.layers * layer + self.hidden * self.vocab
        return 6 * gemms + 6 * self.layers * self.hidden * self.length


SHAPES = {
    "A": Shape(256, 4, 4, 688, 4096, 16, 256),
    "B": Shape(256, 4, 4, 688, 4096, 4, 1024),
    "C": Shape(256, 4, 4, 688, 32000, 16, 256),
    "D": Shape(256, 4, 4, 688, 32000, 4, 1024),
    "E": Shape(512, 8, 8, 1376, 32000, 1, 1024),
}


def configuration(
    shape, name, tokens, output_dir, steps, base=("fp32.json", "adamw.json"), **sections
):
    """Of a run that trains and does nothing else; `sections` are merged into it."""
    config = {
        "include": [str(BASE / piece) for piece in base],
        "name": name,
        "output_dir": str(output_dir),
        "model": {
            "hidden_size": shape.hidden,
            "intermediate_size": shape.intermediate,
            "vocab_size": shape.vocab,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
        },
        "data": {"train": [str(tokens)], "validation": [], "tokenizer": ""},
        "batch": {"seq_len": shape.length, "tokens_per_step": shape.tokens},
        "train": {"steps": steps},
        "eval": {"every_steps": 0},
        "checkpoint": {"every_steps": 0},
        "optimizer": {"lr_additive": 1e-3},
        "device": {"type": "cpu"},
    }
    for section, keys in sections.items():
        config[section] = {**config.get(section, {}), **keys}
    return config


def write_configuration(path, config):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    return path


def write_tokens(path, count, vocab):
    """A shard of `count` tokens below `vocab` in llm.c's format (docs/formats.md), the same again
    after 2^16.
    """
    period = min(count, 1 << 16)
    words = [(i * 40503 + (i >> 7)) % min(vocab, 1 << 16) for i in range(period)]
    block = struct.pack(f"<{period}H", *words)
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253))
        for begin in range(0, count, period):
            file.write(block[: 2 * min(period, count - begin)])
    return path


def planned_bytes(plan):
    """What a process will have in memory, of `mpretrain plan --json`."""
    return plan["allocated_bytes"]["total"] + plan["process_bytes"]
