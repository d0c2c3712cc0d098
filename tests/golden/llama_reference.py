"""A plain LLaMA in PyTorch, in whatever dtype its weights have: the oracle of the model tests.

RMSNorm (mean of squares + eps under the root), RoPE in the half-rotation layout of Hugging Face,
causal multi-head attention, SwiGLU, untied head, no biases, mean cross entropy over the targets
that are not -1. Legend: B batch, T tokens, C hidden, H heads, D head dim, F intermediate, V
vocabulary.
"""

import dataclasses
import math

import numpy as np
import torch

IGNORED_TARGET = -1


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


def parameter_shapes(shape):
    """{Hugging Face name: shape}, in the order of the parameter list: embedding, layers, final
    norm, head.
    """
    c, f, v = shape.hidden_size, shape.intermediate_size, shape.vocab_size
    shapes = {"model.embed_tokens.weight": (v, c)}
    for layer in range(shape.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = (c,)
        for name in "qkvo":
            shapes[prefix + f"self_attn.{name}_proj.weight"] = (c, c)
        shapes[prefix + "post_attention_layernorm.weight"] = (c,)
        shapes[prefix + "mlp.gate_proj.weight"] = (f, c)
        shapes[prefix + "mlp.up_proj.weight"] = (f, c)
        shapes[prefix + "mlp.down_proj.weight"] = (c, f)
    shapes["model.norm.weight"] = (c,)
    shapes["lm_head.weight"] = (v, c)
    return shapes


def random_weights(shape, generator):
    """Float32 weights large enough that attention is far from uniform; norm gains are random about
    1.
    """
    return {
        name: _random_weight(name, dims, generator)
        for name, dims in parameter_shapes(shape).items()
    }


def _random_weight(name, dims, generator):
    z = generator.standard_normal(dims)
    if len(dims) == 1:
        return (1.0 + 0.2 * z).astype(np.float32)
    std = 0.5 if "embed_tokens" in name else 1.25 / math.sqrt(dims[1])
    return (std * z).astype(np.float32)


def to_torch(weights, dtype):
    """Leaf tensors that collect gradients, converted exactly (float32 to float64) or unchanged."""
    return {
        name: torch.tensor(array, dtype=dtype).requires_grad_(True)
        for name, array in weights.items()
    }


def rms_norm(x, gain, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def rope_tables(tokens, head_dim, theta, dtype):
    """cos and sin, [T, D]: position * theta^(-2i/D), the D/2 frequencies repeated twice."""
    frequency = theta ** (-torch.arange(0, head_dim, 2, dtype=dtype) / head_dim)
    angle = torch.arange(tokens, dtype=dtype)[:, None] * frequency[None, :]
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """x [B, H, T, D]: element i is paired with element i + D/2."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


def attention(x, w, prefix, shape):
    """x [B, T, C] → [B, T, C]: softmax(q kᵀ / √D, causal) v, then the output projection."""
    batch, tokens, _ = x.shape

    def heads(name):
        y = x @ w[prefix + f"self_attn.{name}_proj.weight"].T
        return y.view(batch, tokens, shape.num_attention_heads, shape.head_dim).transpose(1, 2)

    cos, sin = rope_tables(tokens, shape.head_dim, shape.rope_theta, x.dtype)
    q, k, v = rotate(heads("q"), cos, sin), rotate(heads("k"), cos, sin), heads("v")
    score = q @ k.transpose(-1, -2) / math.sqrt(shape.head_dim)
    future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    probability = score.masked_fill(future, -math.inf).softmax(-1)
    y = (probability @ v).transpose(1, 2).reshape(batch, tokens, shape.hidden_size)
    return y @ w[prefix + "self_attn.o_proj.weight"].T


def mlp(x, w, prefix):
    """down(silu(gate x) * up x)."""
    gate = x @ w[prefix + "mlp.gate_proj.weight"].T
    up = x @ w[prefix + "mlp.up_proj.weight"].T
    return (gate * torch.sigmoid(gate) * up) @ w[prefix + "mlp.down_proj.weight"].T


def logits(w, shape, tokens):
    """tokens [B, T] → [B*T, V]."""
    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(shape.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        x = x + attention(
            rms_norm(x, w[prefix + "input_layernorm.weight"], shape.rms_norm_eps), w, prefix, shape
        )
        x = x + mlp(
            rms_norm(x, w[prefix + "post_attention_layernorm.weight"], shape.rms_norm_eps),
            w,
            prefix,
        )
    x = rms_norm(x, w["model.norm.weight"], shape.rms_norm_eps)
    return (x @ w["lm_head.weight"].T).reshape(-1, shape.vocab_size)


def mean_cross_entropy(scores, targets):
    """scores [B*T, V], targets [B, T]; the mean is over the targets that count."""
    flat = targets.reshape(-1)
    counted = flat != IGNORED_TARGET
    log_probability = scores[counted].log_softmax(-1)
    return -log_probability.gather(1, flat[counted][:, None]).mean()


def loss_and_gradients(w, shape, tokens, targets):
    """(logits, loss, {name: gradient of the mean loss})."""
    scores = logits(w, shape, tokens)
    loss = mean_cross_entropy(scores, targets)
    gradients = torch.autograd.grad(loss, list(w.values()))
    return scores.detach(), loss.detach(), dict(zip(w, gradients))
