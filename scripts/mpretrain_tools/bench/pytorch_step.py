"""One LLaMA training step after another in PyTorch on the CPU, FP32; prints the median tokens per
second.

The peer of bench/step_bench.cpp: RMSNorm, RoPE, SwiGLU, causal attention, untied head, mean cross
entropy, AdamW. One source for PyTorch 1.13 and 2.x, each by its best means: where they exist,
scaled_dot_product_attention, the fused RMSNorm and the fused AdamW. competitors.py runs it with the
settings that suit it best (see there).
"""

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

from .shapes import SHAPES


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        if hasattr(functional, "rms_norm"):
            return functional.rms_norm(x, self.weight.shape, self.weight, 1e-6)
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6))


def rotate(x, cosine, sine):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1)


class Block(nn.Module):
    def __init__(self, hidden, heads, intermediate):
        super().__init__()
        self.heads = heads
        self.attn_norm, self.mlp_norm = RMSNorm(hidden), RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.o = nn.Linear(hidden, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def attend(self, q, k, v, mask):
        if hasattr(functional, "scaled_dot_product_attention"):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + mask
        return torch.softmax(scores, dim=-1) @ v

    def forward(self, x, rope, mask):
        batch, length, hidden = x.shape
        q, k, v = (
            self.qkv(self.attn_norm(x))
            .view(batch, length, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        out = self.attend(rotate(q, *rope), rotate(k, *rope), v, mask)
        x = x + self.o(out.transpose(1, 2).reshape(batch, length, hidden))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, hidden, layers, heads, intermediate, vocab, length):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, intermediate) for _ in range(layers))
        self.norm = RMSNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        dim = hidden // heads
        angles = torch.outer(
            torch.arange(length).float(), 10000.0 ** (-torch.arange(0, dim, 2).float() / dim)
        )
        self.rope = (angles.cos(), angles.sin())
        self.mask = torch.full((length, length), float("-inf")).triu(1)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.rope, self.mask)
        return self.head(self.norm(x))


def adamw(parameters):
    options = {"lr": 1e-3, "betas": (0.9, 0.98), "weight_decay": 0.1}
    if int(torch.__version__.split(".")[0]) >= 2:
        try:
            return torch.optim.AdamW(parameters, fused=True, **options)  # on CPUs since 2.4
        except RuntimeError:
            pass
    return torch.optim.AdamW(parameters, **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="A")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument(
        "--compile", action="store_true", help="the model and its loss by torch.compile"
    )
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = Llama(
        shape.hidden, shape.layers, shape.heads, shape.intermediate, shape.vocab, shape.length
    )
    optimizer = adamw(list(model.parameters()))
    tokens, targets = torch.randint(0, shape.vocab, (2, shape.batch, shape.length))

    def loss_of(tokens, targets):
        return functional.cross_entropy(model(tokens).view(-1, shape.vocab), targets.view(-1))

    if args.compile:
        loss_of = torch.compile(loss_of)
    rates = []
    for step in range(args.steps + 2):
        start = time.perf_counter()
        loss = loss_of(tokens, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step >= 2:
            rates.append(shape.tokens / (time.perf_counter() - start))
    print(f"{statistics.median(rates):.1f}")
