#!/usr/bin/env python3
"""Evaluates an exported model with Hugging Face transformers in FP32 and compares the loss with
what `mpretrain eval --json` printed.

    examples/hugging_face/evaluate.py --run runs/hugging_face --model exported --compare eval.json

The run's configuration names the validation shards, the length of a row and the number of tokens.
Exits 1 if the losses differ by more than --tolerance.
"""

import argparse
import glob
import json
import pathlib
import sys

try:
    import numpy
    import torch
    from transformers import LlamaForCausalLM
except ModuleNotFoundError as missing:
    sys.exit(
        f"evaluate.py: error: {sys.executable} has no {missing.name};"
        " `pip install torch transformers numpy` installs what is needed"
    )

HEADER_BYTES = 1024  # 256 x int32; see docs/formats.md "Tokens"
TOKEN_TYPES = {20240520: "<u2", 20240801: "<u4"}  # by the first of the header


def tokens_of(shard):
    """All tokens of a shard."""
    magic = int(numpy.fromfile(shard, "<i4", 1)[0])
    if magic not in TOKEN_TYPES:
        sys.exit(f"evaluate.py: error: {shard}: no token shard: it begins with {magic}")
    return numpy.fromfile(shard, TOKEN_TYPES[magic], offset=HEADER_BYTES).astype(numpy.int64)


def rows_of(config):
    """Rows of seq_len + 1 tokens, each beginning with the last token of the one before."""
    shards = [
        shard for pattern in config["data"]["validation"] for shard in sorted(glob.glob(pattern))
    ]
    if not shards:
        sys.exit(f"evaluate.py: error: no file matches {config['data']['validation']}")
    tokens = torch.from_numpy(numpy.concatenate([tokens_of(shard) for shard in shards]))
    length = config["batch"]["seq_len"]
    wanted = -(-config["eval"]["tokens"] // length)
    return tokens.unfold(0, length + 1, length)[:wanted]


@torch.no_grad()
def mean_loss(model, rows, rows_at_a_time=16):
    """Nats per token, summed in FP64."""
    total = 0.0
    for batch in rows.split(rows_at_a_time):
        logits = model(input_ids=batch[:, :-1]).logits
        losses = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="none"
        )
        total += losses.double().sum().item()
    return total / rows[:, 1:].numel()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--run", required=True, help="directory of the run")
    parser.add_argument("--model", required=True, help="what `mpretrain export` wrote")
    parser.add_argument("--compare", required=True, help="what `mpretrain eval --json` printed")
    parser.add_argument(
        "--tolerance", type=float, default=1e-3, help="of the loss; default: %(default)s"
    )
    args = parser.parse_args()
    config = json.loads(pathlib.Path(args.run, "config.json").read_text(encoding="utf-8"))
    expected = json.loads(pathlib.Path(args.compare).read_text(encoding="utf-8"))
    rows = rows_of(config)
    tokens = rows[:, 1:].numel()
    if tokens != expected["tokens"]:
        sys.exit(f"evaluate.py: error: {tokens} tokens, {args.compare} has {expected['tokens']}")
    model = LlamaForCausalLM.from_pretrained(args.model).float().eval()
    loss = mean_loss(model, rows)
    difference = abs(loss - expected["val_loss"])
    print(f"tokens        {tokens}")
    print(f"mpretrain     {expected['val_loss']:.7f}")
    print(f"transformers  {loss:.7f}")
    print(f"difference    {difference:.1e}")
    return 0 if difference <= args.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
