"""Runs LLaMA training steps in PyTorch on the CPU; prints the median tokens per second.

The peer of bench/step_bench.cpp: RMSNorm, RoPE, SwiGLU, causal attention, untied head, mean cross
entropy, AdamW. One source for PyTorch 1.13 and 2.x, each at its best: where they exist,
scaled_dot_product_attention, the fused RMSNorm and the fused AdamW. competitors.py runs it with the
settings that suit it best (see there).

--precision: fp32; autocast: weights, gradients and moments in FP32, GEMMs and attention
in BF16 (torch.autocast); bf16: all of that in BF16.
"""

import argparse
import contextlib
import statistics
import time

import torch

from ..torch_llama import LlamaLoss, LlamaShape
from .shapes import SHAPES


def adamw(parameters):
    options = {"lr": 1e-3, "betas": (0.9, 0.98), "weight_decay": 0.1}
    if int(torch.__version__.split(".")[0]) >= 2:
        try:
            return torch.optim.AdamW(parameters, fused=True, **options)  # on CPUs since 2.4
        except RuntimeError:
            pass
    return torch.optim.AdamW(parameters, **options)


def model_of(shape, precision):
    llama = LlamaShape(shape.hidden, shape.intermediate, shape.layers, shape.heads, shape.vocab)
    model = LlamaLoss(llama, shape.length)
    if precision == "bf16":
        for parameter in model.parameters():  # not the tables of rotations
            parameter.data = parameter.data.bfloat16()
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="A")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument(
        "--compile", action="store_true", help="compile the model and its loss with torch.compile"
    )
    parser.add_argument("--precision", choices=("fp32", "autocast", "bf16"), default="fp32")
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = model_of(shape, args.precision)
    loss_of = torch.compile(model) if args.compile else model
    optimizer = adamw(list(model.parameters()))
    tokens, targets = torch.randint(0, shape.vocab, (2, shape.batch, shape.length))
    rates = []
    for step in range(args.steps + 2):
        start = time.perf_counter()
        with (
            torch.autocast("cpu", torch.bfloat16)
            if args.precision == "autocast"
            else contextlib.nullcontext()
        ):
            loss = loss_of(tokens, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step >= 2:
            rates.append(shape.tokens / (time.perf_counter() - start))
    print(f"{statistics.median(rates):.1f}")
