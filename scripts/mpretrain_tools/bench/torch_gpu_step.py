"""Runs whole training steps of a BF16 LLaMA in PyTorch on random tokens; prints JSON with tokens
per second.

  scripts/bench.py torch_gpu_step --size 350m --tokens-per-step 131072 --seq-len 1024 \\
                                  --micro-batch-rows 32

The peer of `gpu_report step`: weights, gradients and AdamW's moments in BF16, torch.compile over
model and loss, fused scaled dot product attention, fused AdamW, clipping of the gradient norm; same
shapes, tokens per step and micro-batches. The MLP's width is rounded up to a multiple of 16, as
the other side stores it: unrounded it would be slower. The device is synchronized once per block of
steps. If memory runs out, micro-batches are halved, and the result says so. That is tried with one
micro-batch that is not compiled, which needs no less memory: the model is compiled once.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from torch.nn import functional

from ..rank_model.case import from_config
from ..torch_llama import LlamaLoss, LlamaShape

SIZES = ["nano", "60m", "130m", "350m", "1b"]


def rows_that_fit(rows, trial, free):
    """Of a micro-batch: halved until trial(rows) has the memory it needs. What a failed one left is
    freed in between.
    """
    while True:
        try:
            trial(rows)
            return rows
        except RuntimeError as failure:
            if not out_of_memory(failure) or rows % 2:
                raise
            print(f"torch_gpu_step.py: {rows} rows do not fit; trying {rows // 2}", file=sys.stderr)
        rows //= 2  # only here has the failed trial's traceback, which holds its tensors, gone
        free()


def out_of_memory(failure):
    return "out of memory" in str(failure).lower()


class Training:
    def __init__(self, args):
        self.device = torch.device(args.device)
        s = from_config(args.size)[0]
        llama = LlamaShape(s.hidden, s.stored_intermediate, s.layers, s.heads, s.vocab)
        self.model = LlamaLoss(llama, args.seq_len).to(self.device)
        for parameter in self.model.parameters():  # the rotation's tables stay FP32
            parameter.data = parameter.data.to(torch.bfloat16)
        self.optimizer, self.fused = self.adamw()
        rows_of_step = args.tokens_per_step // args.seq_len
        self.tokens, self.targets = torch.randint(
            0, s.vocab, (2, rows_of_step, args.seq_len), device=self.device
        )
        self.rows = rows_that_fit(args.micro_batch_rows, self.try_rows, self.free)
        self.free()
        self.loss, self.compiled = self.compile(args)

    def try_rows(self, rows):
        self.model(self.tokens[:rows], self.targets[:rows]).backward()
        self.optimizer.step()  # its moments take memory from now on
        self.synchronize()

    def free(self):
        self.optimizer.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def compile(self, args):
        if args.no_compile:
            return self.model, "no: --no-compile"
        if not hasattr(torch, "compile"):
            return self.model, f"no: torch {torch.__version__} has no torch.compile"
        return torch.compile(self.model, mode=args.compile_mode), f"yes, mode {args.compile_mode}"

    def adamw(self):
        options = {"lr": 1e-4, "betas": (0.9, 0.98), "weight_decay": 0.1}
        try:
            return torch.optim.AdamW(self.model.parameters(), fused=True, **options), "yes"
        except (RuntimeError, TypeError) as failure:
            return torch.optim.AdamW(self.model.parameters(), **options), f"no: {failure}"

    def step(self):
        parts = self.tokens.shape[0] // self.rows
        for tokens, targets in zip(self.tokens.split(self.rows), self.targets.split(self.rows)):
            loss = self.loss(tokens, targets) / parts
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach() * parts

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def blocks(self, args):
        for _ in range(args.warm_up):
            loss = self.step()
        self.synchronize()
        first = float(loss)
        steps = max(args.steps // args.rounds, 1)
        rates = []
        for _ in range(args.rounds):
            start = time.perf_counter()
            for _ in range(steps):
                loss = self.step()
            self.synchronize()
            rates.append(steps * args.tokens_per_step / (time.perf_counter() - start))
        return rates, first, float(loss)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="60m")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tokens-per-step", type=int, default=131072)
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--micro-batch-rows", type=int, default=16)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compile-mode", default="default")
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    training = Training(args)
    rates, first_loss, last_loss = training.blocks(args)
    cuda = training.device.type == "cuda"
    print(
        json.dumps(
            {
                "peer": f"PyTorch {torch.__version__}",
                "device": torch.cuda.get_device_name() if cuda else "CPU",
                "size": args.size,
                "torch_compile": training.compiled,
                "fused_attention": hasattr(functional, "scaled_dot_product_attention"),
                "fused_adamw": training.fused,
                "tokens_per_step": args.tokens_per_step,
                "seq_len": args.seq_len,
                "micro_batch_rows": training.rows,
                "micro_batch_rows_asked": args.micro_batch_rows,
                "tokens_per_second": {
                    "median": statistics.median(rates),
                    "min": min(rates),
                    "max": max(rates),
                    "samples": rates,
                },
                "peak_memory_bytes": torch.cuda.max_memory_allocated() if cuda else None,
                "first_loss": first_loss,
                "last_loss": last_loss,
            },
            indent=2,
        )
    )
