#!/usr/bin/env python3
"""Reads the three exports of one checkpoint by the libraries of those whose formats they are, and
compares every weight bit for bit.

    examples/continue_llama/judge.py --hf EXPORT --gguf FILE --codes EXPORT_OF_CODES

--hf is read by safetensors, --gguf by the gguf package, --codes is decoded by compressed-tensors.
Exits 1 if a weight is missing or differs.
"""

import argparse
import json
import pathlib
import sys

try:
    import gguf
    import numpy
    import torch
    from compressed_tensors.compressors.base import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    from safetensors.torch import load_file
except ModuleNotFoundError as missing:
    sys.exit(
        f"judge.py: error: {sys.executable} has no {missing.name};"
        " `pip install torch numpy safetensors gguf compressed-tensors` installs what is needed"
    )

GGUF_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hugging_face_name(name):
    if name in GGUF_NAMES:
        return GGUF_NAMES[name]
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{GGUF_NAMES[part]}.weight"


def halves_together(weight, heads):
    """Rows of a head in the order of Hugging Face: llama.cpp rotates neighbours."""
    rows, cols = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


def of_gguf(path, config):
    weights = {}
    heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        for part, key in heads.items():
            if f".{part}." in tensor.name:
                values = halves_together(values, config[key])
        weights[hugging_face_name(tensor.name)] = torch.from_numpy(numpy.array(values))
    return weights


def of_codes(directory, config):
    quantization = QuantizationConfig.model_validate(config["quantization_config"])
    (scheme,) = quantization.config_groups.values()
    compressor = BaseCompressor.get_value_from_registry(str(scheme.format))
    modules = {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        module, _, local = name.rpartition(".")
        modules.setdefault(module, {})[local] = tensor
    return {
        f"{module}.weight": (
            compressor.decompress(state, scheme) if "weight_scale" in state else state
        )["weight"]
        for module, state in modules.items()
    }


def compare(what, found, expected):
    wrong = sorted(set(found) ^ set(expected))
    wrong += [
        name
        for name in set(found) & set(expected)
        if not torch.equal(found[name].to(torch.bfloat16), expected[name].to(torch.bfloat16))
    ]
    print(f"{what}: {len(expected) - len(wrong)} of {len(expected)} tensors equal")
    for name in wrong:
        print(f"  differs: {name}")
    return not wrong


def config_of(directory):
    return json.loads((directory / "config.json").read_text())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option in ("--hf", "--gguf", "--codes"):
        parser.add_argument(option, type=pathlib.Path, required=True)
    args = parser.parse_args()
    expected = load_file(args.hf / "model.safetensors")
    equal = [
        compare("gguf", of_gguf(args.gguf, config_of(args.hf)), expected),
        compare("codes", of_codes(args.codes, config_of(args.codes)), expected),
    ]
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
