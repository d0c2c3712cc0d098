"""Writes the golden models and training traces of the LLaMA tests; see README.md for the contents
of each file.

Everything is computed in float64 from float32 weights, with one thread, and stored as float32.
"""

import dataclasses
import json
import math
import pathlib

import llama_reference as llama
import numpy as np
import safetensors_file
import torch

FOLDER = pathlib.Path(__file__).resolve().parent
TRACE_STEPS = 10


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    shape: llama.LlamaShape
    batch: int
    tokens: int
    seed: int
    ignored: tuple  # flat positions whose target is -1


# llama_tiny: intermediate size not a multiple of 16, odd T, ignored targets, several heads and
# layers. llama_wide: one head of 64, T just over 64.
CASES = (
    Case("llama_tiny", llama.LlamaShape(32, 40, 2, 4, 61), 2, 13, 20240601, (0, 5, 12, 13, 24)),
    Case("llama_wide", llama.LlamaShape(64, 176, 1, 1, 97), 1, 70, 20240602, ()),
)


def inputs(case):
    """(weights, tokens [B, T], targets [B, T]): next-token targets of one random stream per row."""
    generator = np.random.default_rng(case.seed)
    weights = llama.random_weights(case.shape, generator)
    stream = generator.integers(
        0, case.shape.vocab_size, (case.batch, case.tokens + 1), dtype=np.int32
    )
    tokens, targets = stream[:, :-1].copy(), stream[:, 1:].copy()
    targets.reshape(-1)[list(case.ignored)] = llama.IGNORED_TARGET
    return weights, tokens, targets


def as_float32(tensor):
    return tensor.detach().numpy().astype(np.float32)


def case_metadata(case, loss):
    return {
        "config": json.dumps(dataclasses.asdict(case.shape)),
        "seed": str(case.seed),
        "loss": repr(loss),
    }


def write_model(case):
    weights, tokens, targets = inputs(case)
    w = llama.to_torch(weights, torch.float64)
    batch = torch.tensor(tokens, dtype=torch.long), torch.tensor(targets, dtype=torch.long)
    scores, loss, gradients = llama.loss_and_gradients(w, case.shape, *batch)
    tensors = dict(weights)
    tensors.update({"tokens": tokens, "targets": targets, "logits": as_float32(scores)})
    tensors["loss"] = as_float32(loss.reshape(1))
    tensors.update({"grad/" + name: as_float32(gradient) for name, gradient in gradients.items()})
    safetensors_file.write(
        FOLDER / f"{case.name}.safetensors", tensors, case_metadata(case, loss.item())
    )
    print(f"{case.name}: loss {loss.item():.15g}")


def bias_corrected_direction(m, v, o, t):
    m_hat, v_hat = m / (1 - o["beta1"] ** t), v / (1 - o["beta2"] ** t)
    return m_hat / (v_hat.sqrt() + o["eps"])


def ema(state, name, beta, value):
    state[name] = beta * state.get(name, 0.0) + (1 - beta) * value
    return state[name]


def adamw(w, g, state, o, t):
    """w - lr_a (m̂ / (√v̂ + eps) + decay w)"""
    m, v = ema(state, "m", o["beta1"], g), ema(state, "v", o["beta2"], g * g)
    decay = o["weight_decay_additive"] if w.dim() == 2 else 0.0
    return w - o["lr_additive"] * (bias_corrected_direction(m, v, o, t) + decay * w)


def m_plus_adam(w, g, state, o, t):
    """AdamW's step on top of w (1 + u); u follows the gradient with respect to the exponent, ln 2 ·
    w · g.
    """
    m, v = ema(state, "m", o["beta1"], g), ema(state, "v", o["beta2"], g * g)
    decay = o["weight_decay_additive"] if w.dim() == 2 else 0.0
    additive = bias_corrected_direction(m, v, o, t) + decay * w
    ge = math.log(2.0) * w * g
    ve = ema(state, "ve", o["beta2"], ge * ge)
    n = ge / ((ve / (1 - o["beta2"] ** t)).sqrt() + o["eps"])
    n = n.clamp(-o["clip_multiplicative_direction"], o["clip_multiplicative_direction"])
    u = -o["lr_multiplicative"] * n / w.abs().clamp(min=o["tau"])
    u = u.clamp(-(o["clip_relative_step"] - 1e-6), o["clip_relative_step"])
    return w + w * u - o["lr_additive"] * additive


COMMON = {
    "lr_additive": 1e-2,
    "beta1": 0.9,
    "eps": 1e-8,
    "weight_decay_additive": 0.1,
    "clip_grad_norm": 1.0,
}
TRACES = {
    "adamw": (adamw, {**COMMON, "beta2": 0.95}),
    "m_plus_adam": (
        m_plus_adam,
        {
            **COMMON,
            "beta2": 0.98,
            "lr_multiplicative": 1e-2,
            "tau": 1e-8,
            "clip_multiplicative_direction": 10.0,
            "clip_relative_step": 0.75,
        },
    ),
}


def run_trace(case, rule, dtype):
    """Runs TRACE_STEPS updates on one batch; returns (final weights, metadata lists per step)."""
    update, o = TRACES[rule]
    weights, tokens, targets = inputs(case)
    batch = torch.tensor(tokens, dtype=torch.long), torch.tensor(targets, dtype=torch.long)
    w = llama.to_torch(weights, dtype)
    states = {name: {} for name in w}
    trace = {"losses": [], "grad_norms": [], "grad_scales": []}
    for t in range(1, TRACE_STEPS + 1):
        _, loss, gradients = llama.loss_and_gradients(w, case.shape, *batch)
        norm = math.sqrt(sum(g.double().square().sum().item() for g in gradients.values()))
        scale = min(1.0, o["clip_grad_norm"] / (norm + 1e-6))
        for key, value in zip(trace, (loss.item(), norm, scale)):
            trace[key].append(value)
        with torch.no_grad():
            w = {k: update(w[k], scale * gradients[k], states[k], o, t) for k in w}
        w = {name: tensor.requires_grad_(True) for name, tensor in w.items()}
    trace["final_loss"] = llama.loss_and_gradients(w, case.shape, *batch)[1].item()
    return w, trace


def write_trace(case, rule):
    """Writes a float64 trace, and its float32 results as a guide to tolerances."""
    w, trace = run_trace(case, rule, torch.float64)
    w32, trace32 = run_trace(case, rule, torch.float32)
    trace["float32_losses"] = trace32["losses"]
    trace["float32_max_weight_deviation"] = max((w[k] - w32[k]).abs().max().item() for k in w)
    metadata = {key: json.dumps(value) for key, value in trace.items()}
    metadata.update(
        {"rule": rule, "options": json.dumps(TRACES[rule][1]), "start": f"{case.name}.safetensors"}
    )
    tensors = {name: as_float32(tensor) for name, tensor in w.items()}
    safetensors_file.write(FOLDER / f"{case.name}_{rule}_trace.safetensors", tensors, metadata)
    print(f"{case.name} {rule}: {json.dumps(trace)}")


def main():
    torch.set_num_threads(1)
    for case in CASES:
        write_model(case)
    for rule in TRACES:
        write_trace(CASES[0], rule)


if __name__ == "__main__":
    main()
