"""Writes import/<case>/documents.safetensors: transformers' results for a row of several documents
that do not see each other, with a 4-D block-diagonal causal mask and `position_ids` that restart.

  `tokens`, `document_begin`, `targets` I32 [1, T]; `logits` F32 [T, V]; `__metadata__`: `loss`,
  the sum of the losses

The models are those of make_import_golden.py. Logits are transformers' in float64 from the saved
files; norms, rotations and softmax are float32 there. Each document is also computed by itself,
which must agree.
"""

import pathlib

import numpy as np
import safetensors_file
import torch
from transformers import AutoModelForCausalLM

FOLDER = pathlib.Path(__file__).resolve().parent / "import"
CASES = ("plain", "grouped", "rope_llama3", "heads_normed")
# Lengths: one token, up to and beyond the 64 tokens of a tile, and two that end within a tile.
LENGTHS = (1, 40, 24, 3, 22)


def block_mask(lengths):
    """[1, 1, T, T]: 0 where a token sees another, else the lowest finite value."""
    total = sum(lengths)
    mask = torch.full((total, total), torch.finfo(torch.float64).min, dtype=torch.float64)
    begin = 0
    for length in lengths:
        seen = torch.tril(torch.ones(length, length, dtype=torch.bool))
        mask[begin : begin + length, begin : begin + length][seen] = 0
        begin += length
    return mask[None, None]


def packed_logits(model, tokens):
    positions = np.concatenate([np.arange(length) for length in LENGTHS])
    with torch.no_grad():
        return model(
            torch.tensor(tokens[None], dtype=torch.long),
            attention_mask=block_mask(LENGTHS),
            position_ids=torch.tensor(positions[None], dtype=torch.long),
        ).logits[0]


def logits_alone(model, tokens):
    parts, begin = [], 0
    for length in LENGTHS:
        ids = torch.tensor(tokens[None, begin : begin + length], dtype=torch.long)
        with torch.no_grad():
            parts.append(model(ids).logits[0])
        begin += length
    return torch.cat(parts)


def main():
    torch.set_num_threads(1)
    ends = np.cumsum(LENGTHS)
    begins = np.concatenate(
        [np.full(length, end - length) for length, end in zip(LENGTHS, ends)]
    ).astype(np.int32)
    for number, case in enumerate(CASES):
        directory = FOLDER / case
        model = AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float64, attn_implementation="eager"
        ).eval()
        vocabulary = model.config.vocab_size
        generator = np.random.default_rng(500 + number)
        tokens = generator.integers(0, vocabulary, sum(LENGTHS)).astype(np.int32)
        targets = np.roll(tokens, -1)
        targets[ends - 1] = -1
        logits = packed_logits(model, tokens)
        difference = (logits - logits_alone(model, tokens)).abs().max().item()
        assert difference < 1e-5, difference
        loss = torch.nn.functional.cross_entropy(
            logits, torch.tensor(targets, dtype=torch.long), ignore_index=-1, reduction="sum"
        )
        tensors = {
            "tokens": tokens[None],
            "document_begin": begins[None],
            "targets": targets[None],
            "logits": logits.numpy().astype(np.float32),
        }
        metadata = {"loss": repr(loss.item())}
        safetensors_file.write(directory / "documents.safetensors", tensors, metadata)
        print(f"{case}: loss {loss.item():.12g}, documents alone differ by {difference:.2g}")


if __name__ == "__main__":
    main()
