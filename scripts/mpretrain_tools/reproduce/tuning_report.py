"""Tables of descents, from the traces that tune.py writes: what was tried, ablations as the paper
prints them, and which keys decide.
"""

import json
import math
import pathlib
from dataclasses import dataclass, fields

from .. import markdown
from ..sweeps.configuration import BadConfig
from ..sweeps.descent import Sweep, Trace, ablations, sensitive_keys
from .rows import BY_KEY

# Columns in the paper's order.
NAMES = {
    "optimizer.lr_additive": "η_a",
    "optimizer.lr_multiplicative": "η_m",
    "schedule.warmup_fraction": "warmup",
    "optimizer.beta1": "β1",
    "optimizer.beta2": "β2",
    "optimizer.eps": "ε",
    "optimizer.clip_grad_norm": "clip",
    "optimizer.weight_decay_additive": "λ_a",
    "optimizer.weight_decay_multiplicative": "λ_m",
}
# What the paper lists as sensitive to scale, by row.
PAPER = {
    "bf16_adamw": "learning rate, warmup, β1, β2, clip",
    "bf16": "η_m, warmup, λ_m, ε",
    "bf16_fp8_adamw": "learning rate, warmup, β1, β2, clip",
    "bf16_fp8": "η_m, warmup, β1, λ_m, ε",
}


@dataclass(frozen=True)
class Tuned:
    """One descent: whose, at which length, and what it did."""

    row: str
    scale: str
    seed: int
    length: float  # of its runs, in multiples of 20 tokens a parameter
    trace: Trace

    @property
    def title(self):
        return f"{BY_KEY[self.row].label}, {self.scale}, {20 * self.length:g} tokens a parameter"


def read(path):
    """A Tuned, from the JSON of a descent."""
    try:
        found = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        trace = Trace(**{field.name: found[field.name] for field in fields(Trace)})
        trace.sweeps = [Sweep(**sweep) for sweep in trace.sweeps]
        return Tuned(
            BY_KEY[found["row"]].key,
            found["scale"],
            found["seed"],
            found["train.chinchilla"],
            trace,
        )
    except OSError as problem:
        raise BadConfig(
            f"{path}: {problem.strerror}; expected a trace that tune.py writes"
        ) from problem
    except (ValueError, KeyError, TypeError) as problem:
        raise BadConfig(f"{path}: not a trace that tune.py writes: {problem!r}") from problem


def name(key):
    return NAMES.get(key, key)


def keys_of(trace):
    """The swept keys, in the paper's order."""
    known = [key for key in NAMES if key in trace.point]
    return known + [key for key in trace.point if key not in known]


def report(all_tuned):
    """Markdown lines: which keys decide, then trace and ablations of each."""
    lines = ["## Sensitive keys", "", *sensitivity_table(all_tuned)]
    for tuned in all_tuned:
        lines += [
            "",
            f"## {tuned.title}",
            "",
            *trace_table(tuned),
            "",
            *ablation_table(tuned.trace),
        ]
    return lines


def trace_table(tuned):
    """One line a sweep."""
    trace = tuned.trace
    rows = [
        [
            number,
            name(sweep.key),
            ", ".join(f"{value:g}: {text(loss)}" for value, loss in sweep.losses),
            f"{sweep.accepted:g}" if sweep.accepted is not None else "",
        ]
        for number, sweep in enumerate(trace.sweeps, 1)
    ]
    return [
        (
            f"{trace.runs} of {trace.allowed_runs} runs, seed {tuned.seed}:"
            f" {trace.finished or 'under way'}. A change is accepted if it gains"
            f" {trace.threshold:g} nats."
        ),
        "",
        *markdown.table(["sweep", "key", "value: validation loss", "accepted"], rows),
    ]


def ablation_table(trace):
    """As in the paper's appendix: the best point first, then one value changed at a time."""
    keys, found = keys_of(trace), ablations(trace)
    best = [[*(f"{trace.point[key]:g}" for key in keys), f"**{text(trace.loss)}**"]]
    rows = [
        [*(f"{value:g}" if key == changed else "–" for key in keys), text(loss)]
        for changed in keys
        for value, loss in found.get(changed, [])
        if value != trace.point[changed]
    ]
    missing = [name(key) for key in keys if key not in found]
    note = (
        ["", f"Not ablated at this point, only at earlier ones: {', '.join(missing)}."]
        if missing
        else []
    )
    return markdown.table([*map(name, keys), "loss"], best + rows) + note


def text(loss):
    return "diverged" if not math.isfinite(loss) else f"{loss:.4f}"


def sensitivity_table(all_tuned):
    """For each optimizer over all its descents, and for each row over its lengths, which is what
    the paper lists.
    """
    whole = [
        tuned for tuned in all_tuned if len(tuned.trace.grid) > 1
    ]  # not where the rate alone was swept
    groups = [
        (f"{label}, all regimes", [tuned for tuned in whole if BY_KEY[tuned.row].rule == rule], "")
        for rule, label in (("adamw", "AdamW"), ("m_plus_adam", "M+Adam"))
    ]
    groups += [
        (BY_KEY[row].label, [tuned for tuned in whole if tuned.row == row], PAPER.get(row, ""))
        for row in dict.fromkeys(tuned.row for tuned in whole)
    ]
    rows = [
        [label, len(group), *map(joined, sensitivity([tuned.trace for tuned in group])), paper]
        for label, group, paper in groups
        if len(group) > 1
    ]
    if not rows:
        return ["One descent of each optimizer: nothing to compare."]
    header = [
        "optimizer",
        "descents",
        "sensitive",
        "not sensitive",
        "not ablated in all",
        "paper: sensitive to scale",
    ]
    return [
        *markdown.table(header, rows),
        "",
        (
            "A key is not sensitive if one value of it is within the threshold of the best in all"
            " descents."
        ),
    ]


def joined(keys):
    return ", ".join(map(name, keys))


def sensitivity(traces):
    """(sensitive, not sensitive, undecided) of the keys that all swept; undecided if not ablated
    around every end.
    """
    common = [key for key in keys_of(traces[0]) if all(key in trace.grid for trace in traces)]
    undecided = [key for key in common if not all(ablations(trace).get(key) for trace in traces)]
    sensitive = [key for key in sensitive_keys(traces) if key not in undecided]
    return sensitive, [key for key in common if key not in sensitive + undecided], undecided


CSV_HEADER = ("row", "scale", "chinchilla", "sweep", "key", "value", "val_loss", "accepted")


def records(all_tuned):
    """Lines of a CSV, one a point tried."""
    return [
        [
            tuned.row,
            tuned.scale,
            tuned.length,
            number,
            sweep.key,
            value,
            loss,
            int(value == sweep.accepted),
        ]
        for tuned in all_tuned
        for number, sweep in enumerate(tuned.trace.sweeps, 1)
        for value, loss in sweep.losses
    ]
