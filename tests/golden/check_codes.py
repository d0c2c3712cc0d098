"""Decodes an export of codes with the compressed-tensors library.

  check_codes.py CODES PLAIN          CODES of --format hf-codes, PLAIN of --format hf
  check_codes.py CODES PLAIN --load   also compares the logits that transformers computes

Status 1 unless CODES decodes to the weights of PLAIN, bit for bit in bfloat16.
The library's own class reads `quantization_config`; the class that a module's format names decodes
the module.
"""

import argparse
import json
import pathlib
import sys

import torch
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from safetensors.torch import load_file


def scheme_of(directory):
    config = json.loads((directory / "config.json").read_text())["quantization_config"]
    (scheme,) = QuantizationConfig.model_validate(config).config_groups.values()
    return scheme, BaseCompressor.get_value_from_registry(str(scheme.format))


def modules_of(tensors):
    """{module: {local name: tensor}}."""
    modules = {}
    for name, tensor in tensors.items():
        module, _, local = name.rpartition(".")
        modules.setdefault(module, {})[local] = tensor
    return modules


def decoded(directory):
    scheme, compressor = scheme_of(directory)
    weights = {}
    for module, state in modules_of(load_file(directory / "model.safetensors")).items():
        if "weight_scale" in state:
            state = compressor.decompress(state, scheme)
        weights[module + ".weight"] = state["weight"]
    return weights


def logits(model):
    with torch.no_grad():
        return model(torch.arange(1, 33)[None]).logits


def difference_of_logits(codes, plain, weights):
    """Returns the largest difference between the logits of CODES, where each layer decodes itself,
    and of PLAIN with `weights`.
    """
    from transformers import AutoModelForCausalLM

    coded = AutoModelForCausalLM.from_pretrained(codes, dtype="auto")
    decoded_before = AutoModelForCausalLM.from_pretrained(plain, dtype=coded.dtype)
    decoded_before.load_state_dict(weights, strict=False)
    return (logits(coded) - logits(decoded_before)).abs().max().item()


def differences(found, expected):
    wrong = [f"{name}: only in one" for name in sorted(set(found) ^ set(expected))]
    for name in set(found) & set(expected):
        if not torch.equal(found[name].to(torch.bfloat16), expected[name].to(torch.bfloat16)):
            wrong.append(f"{name}: values differ")
    return wrong


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("codes", type=pathlib.Path)
    parser.add_argument("plain", type=pathlib.Path)
    parser.add_argument(
        "--load", action="store_true", help="compare logits of transformers as well"
    )
    arguments = parser.parse_args()
    expected = load_file(arguments.plain / "model.safetensors")
    weights = decoded(arguments.codes)
    wrong = differences(weights, expected)
    print(f"decoded: {len(expected) - len(wrong)} of {len(expected)} weights agree")
    if arguments.load:
        difference = difference_of_logits(arguments.codes, arguments.plain, weights)
        print(f"loaded: the largest difference of a logit is {difference}")
        if difference != 0:  # or NaN
            wrong.append("logits differ")
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
