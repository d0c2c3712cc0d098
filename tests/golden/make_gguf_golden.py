"""Writes tiny.gguf with the gguf package, and checks exported GGUF files with its reader.

  make_gguf_golden.py                          write tiny.gguf
  make_gguf_golden.py --check FILE DIRECTORY   FILE against an export of the same checkpoint as a
                                               Hugging Face directory; status 1 if they differ

The check compares every tensor bit for bit with the directory's, rounded to the type of FILE: gains
are float32, rows of queries and keys in llama.cpp's order. It compares the tokens with
tokenizer.model.
"""

import argparse
import json
import pathlib
import sys

import gguf
import numpy as np
import safetensors_file

FOLDER = pathlib.Path(__file__).resolve().parent
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_golden():
    writer = gguf.GGUFWriter(FOLDER / "tiny.gguf", "llama")
    writer.add_string("name", "tiny é")
    writer.add_uint32("count", 4000000000)
    writer.add_float32("real", -0.1)
    writer.add_bool("yes", True)
    writer.add_bool("no", False)
    writer.add_array("texts", ["a", "", "\u2581b"])
    writer.add_array("reals", [0.5, -1e30])
    writer.add_array("integers", [-1, 2, 3])
    values = np.arange(15, dtype=np.float32) / 4
    writer.add_tensor("matrix", values.reshape(3, 5))
    writer.add_tensor("vector", values[:8].copy())
    writer.add_tensor("half", values[:6].astype(np.float16).reshape(2, 3))
    brain = (values[:4].view(np.uint32) >> 16).astype(np.uint16).reshape(2, 2)
    writer.add_tensor("brain", brain.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# --- check ---------------------------------------------------------------------------------------


def name_of(name):
    name = name.removesuffix(".weight")
    if name in NAMES:
        return NAMES[name] + ".weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[rest]}.weight"


def in_llama_order(matrix, heads):
    """Makes elements i and i + D/2 of a head neighbors."""
    rows, columns = matrix.shape
    return (
        matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def expected_tensors(directory, config):
    tensors, _ = safetensors_file.read(directory / "model.safetensors")
    expected = {}
    for name, value in tensors.items():
        if config["model_type"] == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            which = "num_attention_heads" if "q_proj" in name else "num_key_value_heads"
            value = in_llama_order(value, config[which])
        expected[name_of(name)] = value
    return expected


def rounded(values, tensor_type):
    """Returns float32 values after a round trip through that type, ties to even."""
    if tensor_type == gguf.GGMLQuantizationType.F16:
        return values.astype(np.float16).astype(np.float32)
    if tensor_type != gguf.GGMLQuantizationType.BF16:
        return values
    bits = values.view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32)


def tensor_values(tensor):
    data = np.asarray(tensor.data)
    if tensor.tensor_type == gguf.GGMLQuantizationType.BF16:
        data = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return data.astype(np.float32).reshape([int(n) for n in reversed(tensor.shape)])


def tensor_differences(reader, expected):
    found = {t.name: t for t in reader.tensors}
    extra = set(found) - set(expected) - {"rope_freqs.weight"}
    wrong = [f"unexpected {name}" for name in sorted(extra)]
    for name, value in expected.items():
        if name not in found:
            wrong.append(f"{name} is missing")
            continue
        values = tensor_values(found[name])
        want = rounded(np.ascontiguousarray(value), found[name].tensor_type)
        if values.shape != want.shape or not np.array_equal(values, want):
            wrong.append(f"{name} differs")
        if value.ndim == 1 and found[name].tensor_type != gguf.GGMLQuantizationType.F32:
            wrong.append(f"{name} is {found[name].tensor_type.name}")
    return wrong


def tokenizer_differences(reader, directory, config):
    if not (directory / "tokenizer.model").exists():
        return []
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()
    scores = reader.get_field("tokenizer.ggml.scores").contents()
    count = pieces.get_piece_size()
    wrong = []
    if len(tokens) != config["vocab_size"]:
        wrong.append(f"{len(tokens)} tokens for a vocabulary of {config['vocab_size']}")
    if tokens[:count] != [pieces.id_to_piece(i) for i in range(count)]:
        wrong.append("tokens differ")
    if not np.array_equal(scores[:count], [pieces.get_score(i) for i in range(count)]):
        wrong.append("scores differ")
    return wrong


def check(file, directory):
    config = json.loads((directory / "config.json").read_text())
    reader = gguf.GGUFReader(file)
    expected = expected_tensors(directory, config)
    wrong = tensor_differences(reader, expected)
    wrong += tokenizer_differences(reader, directory, config)
    types = sorted({t.tensor_type.name for t in reader.tensors})
    architecture = reader.get_field("general.architecture").contents()
    print(f"{file}: {architecture}, {len(reader.tensors)} tensors of {', '.join(types)}")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", nargs=2, metavar=("FILE", "DIRECTORY"), type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.check:
        sys.exit(check(*arguments.check))
    write_golden()


if __name__ == "__main__":
    main()
