#!/usr/bin/env python3
"""Writes a small LLaMA with random weights as others publish theirs: a directory in Hugging Face's
format with config.json, model.safetensors and the tokenizer.

    examples/continue_llama/make_model.py --tokenizer tokenizer.model --output published

It has what LLaMAs of today have: fewer heads of keys than of queries, one matrix for embedding and
head, and rotary frequencies of a longer context.
"""

import argparse
import json
import pathlib
import shutil
import sys

try:
    import numpy
    from safetensors.numpy import save_file
except ModuleNotFoundError as missing:
    sys.exit(
        f"make_model.py: error: {sys.executable} has no {missing.name};"
        " `pip install numpy safetensors` installs what is needed"
    )

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 2048,
    "max_position_embeddings": 256,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "torch_dtype": "float32",
}


def weights(config, seed=1):
    """{name: FP32 array}."""
    random = numpy.random.default_rng(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]

    def matrix(rows, cols):
        drawn = random.standard_normal((rows, cols), dtype=numpy.float32)
        return drawn * numpy.float32(config["initializer_range"])

    yield "model.embed_tokens.weight", matrix(config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}.{{}}.weight"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield name.format(norm), numpy.ones(hidden, numpy.float32)
        for part, shape in (
            ("self_attn.q_proj", (queries, hidden)),
            ("self_attn.k_proj", (keys, hidden)),
            ("self_attn.v_proj", (keys, hidden)),
            ("self_attn.o_proj", (hidden, queries)),
            ("mlp.gate_proj", (inner, hidden)),
            ("mlp.up_proj", (inner, hidden)),
            ("mlp.down_proj", (hidden, inner)),
        ):
            yield name.format(part), matrix(*shape)
    yield "model.norm.weight", numpy.ones(hidden, numpy.float32)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    save_file(dict(weights(CONFIG)), args.output / "model.safetensors", {"format": "pt"})
    shutil.copy(args.tokenizer, args.output / "tokenizer.model")
    settings = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": False}
    (args.output / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    print(
        f"{args.output}: a random LLaMA of {sum(w.size for _, w in weights(CONFIG)):,} parameters"
    )


if __name__ == "__main__":
    main()
