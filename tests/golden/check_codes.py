"""Decodes an export of codes by the compressed-tensors library.

  check_codes.py CODES PLAIN          CODES of --format hf-codes, PLAIN of --format hf
  check_codes.py CODES PLAIN --load   and transformers loads CODES as well

Status 1 unless CODES decodes to the weights of PLAIN, bit for bit in bfloat16.
`quantization_config` is read by the library's own class, each module decoded by the class that its
format names.
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


def loaded(directory):
    from transformers import AutoModelForCausalLM, CompressedTensorsConfig

    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype="auto", quantization_config=CompressedTensorsConfig(dequantize=True)
    )
    return {name: value for name, value in model.state_dict().items() if name.endswith(".weight")}


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
    parser.add_argument("--load", action="store_true", help="load CODES with transformers as well")
    arguments = parser.parse_args()
    expected = load_file(arguments.plain / "model.safetensors")
    readers = [decoded, loaded] if arguments.load else [decoded]
    wrong = []
    for reader in readers:
        found = differences(reader(arguments.codes), expected)
        print(f"{reader.__name__}: {len(expected) - len(found)} of {len(expected)} weights agree")
        wrong += found
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
