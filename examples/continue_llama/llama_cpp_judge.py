#!/usr/bin/env python3
"""Lets llama.cpp run a GGUF export: it must give texts the same ids as the tokenizer of the Hugging
Face export, and continue prompts as `mpretrain generate --temperature 0` does.

    examples/continue_llama/llama_cpp_judge.py --checkpoint RUN --gguf FILE --hf EXPORT --texts FILE

The model must compute in FP32, as one that `mpretrain convert --weights fp32` made. --texts has a
text a line; the first words of some are the prompts. Exits 1 at a difference.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import llama_cpp
    import tokenizers
except ModuleNotFoundError as missing:
    sys.exit(
        f"llama_cpp_judge.py: error: {sys.executable} has no {missing.name};"
        " `pip install llama-cpp-python tokenizers` installs what is needed"
    )

PROMPTS = 8
PROMPT_WORDS = 4
NEW_TOKENS = 60


def texts_of(path):
    lines = [line.strip() for line in path.read_text().splitlines()]
    return [line for line in lines if len(line.split()) > PROMPT_WORDS]


def prompts_of(texts):
    every = max(1, len(texts) // PROMPTS)
    return [" ".join(text.split()[:PROMPT_WORDS]) for text in texts[::every]][:PROMPTS]


def ids_of(model, text):
    return model.tokenize(text.encode(), add_bos=False, special=False)


def compare_ids(model, tokenizer, texts):
    same = [
        ids_of(model, text) == tokenizer.encode(text, add_special_tokens=False).ids
        for text in texts
    ]
    print(f"ids: {sum(same)} of {len(texts)} texts the same")
    for text, equal in zip(texts, same):
        if not equal:
            print(f"  differs: {text}")
    return all(same)


def continued_here(program, checkpoint, prompts):
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory) / "prompts.txt"
        file.write_text("\n".join(prompts) + "\n")
        command = [program, "generate", "--checkpoint", checkpoint, "--prompts", file, "--json"]
        command += ["--temperature", "0", "--max-tokens", str(NEW_TOKENS)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line)["text"] for line in output.splitlines()]


def continued_there(model, prompt):
    """The tokens that llama.cpp finds most likely, one after the other, as text."""
    add_bos = model.metadata.get("tokenizer.ggml.add_bos_token") == "true"
    prompt_ids = model.tokenize(prompt.encode(), add_bos=add_bos, special=False)
    ids = []
    model.reset()
    for token in model.generate(prompt_ids, temp=0.0, repeat_penalty=1.0):
        if token == model.token_eos() or len(ids) == NEW_TOKENS:
            break
        ids.append(token)
    whole = model.detokenize(prompt_ids + ids).decode(errors="replace")
    return whole[len(model.detokenize(prompt_ids).decode(errors="replace")) :]


def compare_continuations(model, here, prompts):
    there = [continued_there(model, prompt) for prompt in prompts]
    same = [a == b for a, b in zip(here, there)]
    print(f"continuations: {sum(same)} of {len(prompts)} prompts the same")
    for prompt, a, b in zip(prompts, here, there):
        if a != b:
            print(f"  differs: {prompt}\n    mpretrain: {a!r}\n    llama.cpp: {b!r}")
    return all(same)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option in ("--checkpoint", "--gguf", "--hf", "--texts"):
        parser.add_argument(option, type=pathlib.Path, required=True)
    parser.add_argument("--program", default=os.environ.get("MPRETRAIN", "mpretrain"))
    args = parser.parse_args()
    texts = texts_of(args.texts)
    if not texts:
        sys.exit(f"{args.texts}: no line has more than {PROMPT_WORDS} words")
    prompts = prompts_of(texts)
    model = llama_cpp.Llama(str(args.gguf), n_ctx=0, logits_all=False, verbose=False)
    tokenizer = tokenizers.Tokenizer.from_file(str(args.hf / "tokenizer.json"))
    equal = [
        compare_ids(model, tokenizer, texts),
        compare_continuations(
            model, continued_here(args.program, args.checkpoint, prompts), prompts
        ),
    ]
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
