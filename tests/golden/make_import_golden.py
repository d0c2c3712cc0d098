"""Writes import/<case>/: small models saved by transformers, and their logits, which `import` must
reproduce. Nothing here is computed by mpretrain.

  config.json, model.safetensors (or shards and their index)   by save_pretrained()
  logits.safetensors            `tokens` I32 [B, T], `logits` F32 [B*T, V]

Weights are random and rounded to the type of the file first. Logits are transformers' in float64
from the saved files; norms, rotations and softmax are float32 there. Configurations named in
FORMER use the key names of transformers 4.
"""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import safetensors_file
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

FOLDER = pathlib.Path(__file__).resolve().parent / "import"
ROWS, TOKENS = 1, 18

SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
# With a base of 100 and a context of 32, rotary frequencies of heads of 8 fall into all three
# ranges of llama3.
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    keys: dict  # added to SMALL
    dtype: torch.dtype = torch.bfloat16
    qwen3: bool = False
    shard_bytes: int = 0  # 0: one file

    def config(self):
        kind = Qwen3Config if self.qwen3 else LlamaConfig
        return kind(**{**SMALL, **self.keys})


PLAIN = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "tie_word_embeddings": False}
CASES = (
    Case("plain", PLAIN, torch.float32),
    Case("fp16", PLAIN, torch.float16),
    Case("sharded", PLAIN, shard_bytes=4000),
    Case("grouped", {"num_key_value_heads": 2, "tie_word_embeddings": False}),
    Case("one_key_head", {"num_key_value_heads": 1, "num_hidden_layers": 2, "hidden_size": 16}),
    Case("wide_heads", {"head_dim": 12, "num_key_value_heads": 2}),
    Case("tied", {}),
    Case(
        "rope_linear",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 2.5}},
    ),
    Case("rope_llama3", {"rope_parameters": LLAMA3}),
    Case("heads_normed", {"head_dim": 12, "num_key_value_heads": 2}, qwen3=True),
)
FORMER = {"rope_linear": "type"}


def random_model(case, seed):
    generator = torch.Generator().manual_seed(seed)
    config = case.config()
    model = (Qwen3ForCausalLM if case.qwen3 else LlamaForCausalLM)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            values = torch.empty(parameter.shape).normal_(0, 1, generator=generator)
            parameter.copy_(1 + 0.2 * values if parameter.dim() == 1 else 0.2 * values)
    return model.to(case.dtype)


def spell_as_before(path, type_key):
    """Writes rope_parameters as rope_theta and rope_scaling, and dtype as torch_dtype."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = {type_key: rope.pop("rope_type"), **rope}
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def save(case, model, directory):
    shutil.rmtree(directory, ignore_errors=True)
    limit = {"max_shard_size": case.shard_bytes} if case.shard_bytes else {}
    model.save_pretrained(directory, **limit)
    (directory / "generation_config.json").unlink(missing_ok=True)
    if case.name in FORMER:
        spell_as_before(directory / "config.json", FORMER[case.name])


def logits_of(directory, tokens):
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float64, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        scores = model(torch.tensor(tokens, dtype=torch.long)).logits
    return scores.reshape(-1, scores.shape[-1]).numpy().astype(np.float32)


def main():
    torch.set_num_threads(1)
    for number, case in enumerate(CASES):
        directory = FOLDER / case.name
        save(case, random_model(case, 100 + number), directory)
        vocabulary = case.config().vocab_size
        tokens = np.random.default_rng(number).integers(0, vocabulary, (ROWS, TOKENS), np.int32)
        logits = logits_of(directory, tokens)
        safetensors_file.write(
            directory / "logits.safetensors", {"tokens": tokens, "logits": logits}, {}
        )
        files = sum(1 for _ in directory.glob("model*.safetensors"))
        print(f"{case.name}: {files} file(s), largest logit {np.abs(logits).max():.3f}")


if __name__ == "__main__":
    main()
