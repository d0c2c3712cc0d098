"""LLaMA in PyTorch, once: by Plain operations the oracle of the model tests, by Fast ones what
speed is compared with.

RMSNorm (mean of squares + eps under the root), RoPE in the half-rotation layout of Hugging Face,
causal multi-head attention, SwiGLU, untied head, no biases.
Legend: B batch, T tokens, C hidden, H heads, D head dim, F intermediate, V vocabulary.
"""

import dataclasses
import functools
import math

import torch
from torch import nn
from torch.nn import functional


@dataclasses.dataclass(frozen=True)
class LlamaShape:
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    vocab_size: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0

    @property
    def head_dim(self):
        return self.hidden_size // self.num_attention_heads


class Plain:
    """Every operation as its formula says, in the dtype of what it is given."""

    @staticmethod
    def embed(weight, tokens):
        return weight[tokens]

    @staticmethod
    def rms_norm(x, gain, eps):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * gain

    @staticmethod
    def rope_tables(tokens, shape, dtype):
        """cos and sin, [T, D]: position * theta^(-2i/D), the D/2 frequencies repeated twice."""
        frequency = shape.rope_theta ** (
            -torch.arange(0, shape.head_dim, 2, dtype=dtype) / shape.head_dim
        )
        angle = torch.arange(tokens, dtype=dtype)[:, None] * frequency[None, :]
        angle = torch.cat([angle, angle], dim=-1)
        return angle.cos(), angle.sin()

    @staticmethod
    def rotate(x, cos, sin):
        """x [B, H, T, D]: element i is paired with element i + D/2."""
        low, high = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-high, low], dim=-1) * sin

    @staticmethod
    def attend(q, k, v):
        """softmax(q kᵀ / √D, causal) v"""
        tokens, head_dim = q.shape[-2:]
        score = q @ k.transpose(-1, -2) / math.sqrt(head_dim)
        future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        return score.masked_fill(future, -math.inf).softmax(-1) @ v

    @staticmethod
    def silu(x):
        return x * torch.sigmoid(x)


class Fast:
    """The fastest that each version of PyTorch has; norms and rotations in FP32."""

    embed = staticmethod(lambda weight, tokens: functional.embedding(tokens, weight))
    silu = staticmethod(functional.silu)

    @staticmethod
    def rms_norm(x, gain, eps):
        if x.dtype == gain.dtype and hasattr(functional, "rms_norm"):
            return functional.rms_norm(x, gain.shape, gain, eps)
        wide = x.float()
        return gain * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)

    @staticmethod
    def rope_tables(tokens, shape, dtype):
        """cos and sin, [T, D/2]."""
        return tuple(table.chunk(2, dim=-1)[0] for table in Plain.rope_tables(tokens, shape, dtype))

    @staticmethod
    def rotate(x, cos, sin):
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)

    @staticmethod
    def attend(q, k, v):
        if hasattr(functional, "scaled_dot_product_attention"):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        score = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5  # before torch 2.0
        return torch.softmax(score + causal_mask(q.shape[-2], q.device), dim=-1).to(v.dtype) @ v


@functools.lru_cache(maxsize=1)
def causal_mask(tokens, device):
    return torch.full((tokens, tokens), -math.inf, device=device).triu(1)


def parameter_shapes(shape, fused=False):
    """{Hugging Face name: shape}, in the order of the parameter list: embedding, layers, final norm
    and head. Fused, what is multiplied with the same input is one matrix.
    """
    c, f, v = shape.hidden_size, shape.intermediate_size, shape.vocab_size
    shapes = {"model.embed_tokens.weight": (v, c)}
    for layer in range(shape.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = (c,)
        for names in ("qkv", "o") if fused else "qkvo":
            shapes[prefix + f"self_attn.{names}_proj.weight"] = (len(names) * c, c)
        shapes[prefix + "post_attention_layernorm.weight"] = (c,)
        for name in ("gate_up",) if fused else ("gate", "up"):
            shapes[prefix + f"mlp.{name}_proj.weight"] = ((2 if fused else 1) * f, c)
        shapes[prefix + "mlp.down_proj.weight"] = (c, f)
    shapes["model.norm.weight"] = (c,)
    shapes["lm_head.weight"] = (v, c)
    return shapes


def project(x, w, prefix, fused, names):
    """The GEMMs of x with the matrices of those names, which may lie in one."""
    weight = w.get(f"{prefix}{fused}_proj.weight")
    if weight is not None:
        return (x @ weight.T).chunk(len(names), dim=-1)
    return [x @ w[f"{prefix}{name}_proj.weight"].T for name in names]


def attention(x, w, prefix, shape, operations, rope):
    """x [B, T, C] → [B, T, C]"""
    batch, tokens, hidden = x.shape
    q, k, v = (
        y.view(batch, tokens, shape.num_attention_heads, shape.head_dim).transpose(1, 2)
        for y in project(x, w, prefix, "qkv", ("q", "k", "v"))
    )
    y = operations.attend(operations.rotate(q, *rope), operations.rotate(k, *rope), v)
    return y.transpose(1, 2).reshape(batch, tokens, hidden) @ w[prefix + "o_proj.weight"].T


def mlp(x, w, prefix, operations):
    """down(silu(gate x) * up x)"""
    gate, up = project(x, w, prefix, "gate_up", ("gate", "up"))
    return (operations.silu(gate) * up) @ w[prefix + "down_proj.weight"].T


def logits(w, shape, tokens, operations=Plain, rope=None):
    """tokens [B, T] → [B*T, V]. w: {name: tensor} of parameter_shapes()."""
    x = operations.embed(w["model.embed_tokens.weight"], tokens)
    rope = rope or operations.rope_tables(tokens.shape[-1], shape, x.dtype)

    def norm(x, name):
        return operations.rms_norm(x, w[name], shape.rms_norm_eps)

    for layer in range(shape.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        inner = norm(x, prefix + "input_layernorm.weight")
        x = x + attention(inner, w, prefix + "self_attn.", shape, operations, rope)
        inner = norm(x, prefix + "post_attention_layernorm.weight")
        x = x + mlp(inner, w, prefix + "mlp.", operations)
    return (norm(x, "model.norm.weight") @ w["lm_head.weight"].T).reshape(-1, shape.vocab_size)


class LlamaLoss(nn.Module):
    """Tokens and targets, [B, T], to the mean cross entropy, by Fast operations and fused matrices;
    weights start at random.
    """

    def __init__(self, shape, tokens):
        super().__init__()
        self.shape = shape
        self.names = {}  # of parameters: PyTorch allows no dots
        for name, dims in parameter_shapes(shape, fused=True).items():
            start = torch.ones(dims) if len(dims) == 1 else torch.randn(dims) * 0.02
            self.names[name] = name.replace(".", "_")
            self.register_parameter(self.names[name], nn.Parameter(start))
        cos, sin = Fast.rope_tables(tokens, shape, torch.float32)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, tokens, targets):
        w = {name: getattr(self, attribute) for name, attribute in self.names.items()}
        scores = logits(w, self.shape, tokens, Fast, (self.cos, self.sin))
        return functional.cross_entropy(scores.float(), targets.view(-1))
