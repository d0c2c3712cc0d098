"""Reference of the model tests: a plain LLaMA in PyTorch, in the dtype of its weights, its mean
cross entropy over the targets that are not -1, and its gradients.
"""

import math

import numpy as np
import torch
from mpretrain_tools.torch_llama import LlamaShape, logits, parameter_shapes

__all__ = ["LlamaShape", "logits", "parameter_shapes"]

IGNORED_TARGET = -1


def random_weights(shape, generator):
    """Returns float32 weights large enough that attention is far from uniform; norm gains are
    random around 1.
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


def mean_cross_entropy(scores, targets):
    """scores [B*T, V], targets [B, T]; the mean is over the targets that are not ignored."""
    flat = targets.reshape(-1)
    counted = flat != IGNORED_TARGET
    log_probability = scores[counted].log_softmax(-1)
    return -log_probability.gather(1, flat[counted][:, None]).mean()


def loss_and_gradients(w, shape, tokens, targets):
    """Returns (logits, loss, {name: gradient of the mean loss})."""
    scores = logits(w, shape, tokens)
    loss = mean_cross_entropy(scores, targets)
    gradients = torch.autograd.grad(loss, list(w.values()))
    return scores.detach(), loss.detach(), dict(zip(w, gradients))
