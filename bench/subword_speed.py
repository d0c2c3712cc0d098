#!/usr/bin/env python3
"""Tokenizes the same text with `mpretrain tokenize` and with the tokenizers library, in turn.

    bench/subword_speed.py --program build/cpu/mpretrain --tokenizer tokenizer.json text.jsonl

Both use all cores. mpretrain's time covers the whole program: it reads the file, encodes and writes
shards. The library's covers only encode_batch(), on documents in memory. Needs the tokenizers
library.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

from tokenizers import Tokenizer

BATCH = 1000


def seconds_of(action):
    begin = time.perf_counter()
    tokens = action()
    return time.perf_counter() - begin, tokens


def by_program(arguments, directory):
    command = [arguments.program, "tokenize", "--no-eos", "--overwrite", "--output", directory]
    command += ["--input", arguments.text, "--tokenizer", arguments.tokenizer]
    subprocess.run(command, check=True, capture_output=True)
    manifest = json.loads((pathlib.Path(directory) / "manifest.json").read_text())
    return manifest["splits"]["train"]["tokens"]


def by_library(tokenizer, texts):
    tokens = 0
    for i in range(0, len(texts), BATCH):
        batch = tokenizer.encode_batch(texts[i : i + BATCH], add_special_tokens=False)
        tokens += sum(len(encoding) for encoding in batch)
    return tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", help="JSON lines with the field text")
    parser.add_argument("--program", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    lines = pathlib.Path(arguments.text).read_text(encoding="utf-8").split("\n")
    texts = [json.loads(line)["text"] for line in lines if line]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    tokenizer = Tokenizer.from_file(arguments.tokenizer)
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(arguments.rounds):
            for name, action in [
                ("mpretrain", lambda: by_program(arguments, directory)),
                ("tokenizers", lambda: by_library(tokenizer, texts)),
            ]:
                seconds, tokens = seconds_of(action)
                print(f"{name:11} {megabytes / seconds:7.2f} MB/s, {tokens} tokens", flush=True)


if __name__ == "__main__":
    main()
