"""Runs an exported Hugging Face directory through transformers' LlamaForCausalLM in float32.

  make_export_golden.py DIRECTORY --tokens 1,5,9 [--out FILE]   logits of one row of tokens
  make_export_golden.py DIRECTORY --check FILE                  compare; status 1 if they differ
  make_export_golden.py --self-check                            golden models against transformers

A logits file has `tokens` I32 [B, T] and `logits` F32 [B*T, V]. The comparison passes if the
largest absolute difference is at most --tolerance times max(1, largest |value|). Missing or
unexpected tensors in the directory are errors.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import llama_reference as llama
import numpy as np
import safetensors_file
import torch
from transformers import LlamaForCausalLM, LlamaTokenizer

FOLDER = pathlib.Path(__file__).resolve().parent


def load_model(directory):
    model, report = LlamaForCausalLM.from_pretrained(
        directory, torch_dtype=torch.float32, output_loading_info=True
    )
    wrong = {key: names for key, names in report.items() if names}
    if wrong:
        sys.exit(f"{directory}: the tensors do not fit the model: {wrong}")
    return model.eval()


def check_tokenizer(directory, vocab_size):
    """Checks that tokenizer.model, if present, loads and does not exceed the model's vocabulary."""
    if not (pathlib.Path(directory) / "tokenizer.model").exists():
        print("no tokenizer.model: not checked")
        return
    tokenizer = LlamaTokenizer.from_pretrained(directory)
    if len(tokenizer) > vocab_size:
        sys.exit(f"{directory}: tokenizer has {len(tokenizer)} pieces, the model has {vocab_size}")
    print(
        f"tokenizer: {len(tokenizer)} pieces, bos {tokenizer.bos_token_id}, eos"
        f" {tokenizer.eos_token_id}"
    )


def model_logits(model, tokens):
    """tokens [B, T] → float32 [B*T, V]."""
    scores = model(torch.tensor(tokens, dtype=torch.long)).logits
    return scores.reshape(-1, scores.shape[-1])


def differs(found, expected, tolerance):
    """Prints the largest absolute difference. Returns whether it exceeds the tolerance, shapes
    differ or NaN occurs.
    """
    if found.shape != expected.shape:
        print(f"shape {found.shape}, expected {expected.shape}")
        return True
    difference = float(np.abs(found.astype(np.float64) - expected).max())
    limit = tolerance * max(1.0, float(np.abs(expected).max()))
    print(
        f"largest difference {difference:.3g}, limit {limit:.3g}, largest value"
        f" {np.abs(expected).max():.3g}"
    )
    return not difference <= limit


def write_hugging_face(directory, case_file):
    """Writes a golden model as a Hugging Face directory; config.json has only required keys."""
    tensors, metadata = safetensors_file.read(case_file)
    shape = llama.LlamaShape(**json.loads(metadata["config"]))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_attention_heads,
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": 1024,
        "hidden_act": "silu",
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
    }
    weights = {name: tensors[name] for name in llama.parameter_shapes(shape)}
    (directory / "config.json").write_text(json.dumps(config, indent=2))
    safetensors_file.write(directory / "model.safetensors", weights, {"format": "pt"})
    return tensors, shape


def self_check_case(name, tolerance):
    """Compares logits and gradients of transformers with the plain model, both in float32, and
    logits with the golden file.
    """
    with tempfile.TemporaryDirectory() as folder:
        tensors, shape = write_hugging_face(pathlib.Path(folder), FOLDER / f"{name}.safetensors")
        model = load_model(folder)
    w = llama.to_torch({k: tensors[k] for k in llama.parameter_shapes(shape)}, torch.float32)
    tokens, targets = (
        torch.tensor(tensors[k].copy(), dtype=torch.long) for k in ("tokens", "targets")
    )
    scores, _, _gradients = llama.loss_and_gradients(w, shape, tokens, targets)
    found = model_logits(model, tensors["tokens"])
    llama.mean_cross_entropy(found, targets).backward()
    found = found.detach().numpy()
    print(f"{name}, logits, plain model in float32:")
    failed = differs(found, scores.numpy(), tolerance)
    print(f"{name}, logits, golden file:")
    failed |= differs(found, tensors["logits"], tolerance)
    print(f"{name}, gradients, golden file (all parameters):")
    joined = np.concatenate([p.grad.numpy().ravel() for p in (model.get_parameter(k) for k in w)])
    expected = np.concatenate([tensors["grad/" + k].ravel() for k in w])
    return failed | differs(joined, expected, tolerance)


def run_directory(arguments):
    model = load_model(arguments.directory)
    check_tokenizer(arguments.directory, model.config.vocab_size)
    if arguments.check:
        expected, _ = safetensors_file.read(arguments.check)
        tokens = expected["tokens"]
    else:
        tokens = np.array([[int(t) for t in arguments.tokens.split(",")]], dtype=np.int32)
    with torch.no_grad():
        scores = model_logits(model, tokens).numpy()
    if arguments.check:
        return differs(expected["logits"], scores, arguments.tolerance)
    if arguments.out:
        safetensors_file.write(arguments.out, {"tokens": tokens, "logits": scores}, {})
    else:
        np.savetxt(sys.stdout, scores, fmt="%.8g")
    return False


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "directory", nargs="?", help="config.json, model.safetensors and optionally tokenizer.model"
    )
    parser.add_argument("--tokens", help="comma separated token ids")
    parser.add_argument("--out", help="write tokens and logits here instead of printing logits")
    parser.add_argument("--check", help="safetensors file of tokens and logits to compare with")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--self-check", action="store_true")
    arguments = parser.parse_args()
    if not arguments.self_check and not (
        arguments.directory and (arguments.tokens or arguments.check)
    ):
        parser.error(
            "a directory and one of --tokens and --check are needed, or --self-check alone"
        )
    return arguments


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    if arguments.self_check:
        failures = [
            self_check_case(name, min(arguments.tolerance, 1e-5))
            for name in ("llama_tiny", "llama_wide")
        ]
        sys.exit(1 if any(failures) else 0)
    sys.exit(1 if run_directory(arguments) else 0)


if __name__ == "__main__":
    main()
