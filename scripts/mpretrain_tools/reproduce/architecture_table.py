"""The paper's architecture table: shapes, parameters by kind and lengths of runs, for all sizes of
the paper.

    scripts/reproduce.py architecture_table --scale 60m --output docs/results/60m

Parameters and steps are what `mpretrain plan` counts; it does not list shapes and kinds, which are
of the configuration and have to add up to its count. Trains nothing. Exits 1 if anything differs
from the paper.
"""

import sys
from dataclasses import dataclass

from ..markdown import table
from ..rank_model.case import Shape, from_config
from ..sweeps.plan import plan
from . import paper
from .artefact import Artefact
from .rows import SCALES, SIZES


@dataclass(frozen=True)
class Architecture:
    """A size as configured and as planned."""

    size: str
    shape: Shape
    seq_len: int
    tokens_per_step: int
    parameters: int  # by the plan, as are the steps
    steps: int
    steps_by_parameters: int  # 20 tokens a parameter

    @property
    def kinds(self):
        """Parameters by kind. Embedding and head are two tensors."""
        return self.shape.kinds

    @property
    def non_embedding(self):
        return self.kinds["linear"] + self.kinds["norm"]


def architecture(program, size):
    file = f"{size}_bf16.json"
    shape, batch = from_config(size)
    counted = plan(program, file)
    by_parameters = plan(program, file, "train.steps=null", "train.chinchilla=1")
    return Architecture(
        size,
        shape,
        batch.seq_len,
        batch.rows * batch.seq_len,
        counted["parameters"],
        counted["steps"],
        by_parameters["steps"],
    )


def differences(found):
    """What is not as the paper says, as text."""
    wrong, total = [], sum(found.kinds.values())
    if total != found.parameters:
        wrong.append(
            f"parameters by kind add up to {total:,}, the plan counts {found.parameters:,}"
        )
    if found.size not in SIZES:
        return wrong
    names = ("hidden", "intermediate", "layers", "heads", "steps", "parameters", "non-embedding")
    theirs = (*paper.ARCHITECTURE[found.size], *paper.PARAMETERS[found.size])
    shape = found.shape
    ours = (
        shape.hidden,
        shape.intermediate,
        shape.layers,
        shape.heads,
        found.steps,
        found.parameters,
        found.non_embedding,
    )
    return wrong + [
        f"{name}: {a:,}, the paper has {b:,}" for name, a, b in zip(names, ours, theirs) if a != b
    ]


COLUMNS = {  # header: how it is told of an Architecture
    "hidden": lambda a: a.shape.hidden,
    "intermediate": lambda a: a.shape.intermediate,
    "stored": lambda a: a.shape.stored_intermediate,
    "layers": lambda a: a.shape.layers,
    "heads": lambda a: f"{a.shape.heads} of {a.shape.hidden // a.shape.heads}",
    "vocabulary": lambda a: f"{a.shape.vocab:,}",
    "embedding": lambda a: f"{a.kinds['embedding']:,}",
    "head": lambda a: f"{a.kinds['head']:,}",
    "linear": lambda a: f"{a.kinds['linear']:,}",
    "norm": lambda a: f"{a.kinds['norm']:,}",
    "parameters": lambda a: f"{a.parameters:,}",
    "non-embedding": lambda a: f"{a.non_embedding:,}",
    "row of text": lambda a: f"{a.seq_len:,}",
    "tokens a step": lambda a: f"{a.tokens_per_step:,}",
    "steps": lambda a: f"{a.steps:,}",
    "tokens a parameter": lambda a: f"{a.steps * a.tokens_per_step / a.parameters:.1f}",
    "steps for 20 a parameter": lambda a: f"{a.steps_by_parameters:,}",
}


def architecture_table(found):
    rows = [[name, *(tell(each) for each in found)] for name, tell in COLUMNS.items()]
    verdicts = [
        "differs" if differences(each) else "as printed" if each.size in SIZES else ""
        for each in found
    ]
    return table(["", *(each.size for each in found)], [*rows, ["paper", *verdicts]])


def records(found):
    for each in found:
        yield [each.size, *(str(tell(each)).replace(",", "") for tell in COLUMNS.values())]


def main(arguments=None):
    artefact = Artefact("architecture_table", __doc__, arguments)
    found = [
        architecture(artefact.args.program, size)
        for size in sorted({artefact.scale, *SIZES}, key=SCALES.index)
    ]
    wrong = [f"{each.size}: {text}" for each in found for text in differences(each)]
    lines = [
        (
            f"Parameters and steps counted by `mpretrain plan` of {artefact.version()}. Compared"
            " with the paper: hidden, intermediate, layers, heads and steps, which it prints;"
            " parameters, which follow from its Apollo-E byte counts with a vocabulary of 32,000"
            " and an untied head. `stored`: the intermediate size with the zeros that FP8 GEMMs"
            " need."
        ),
        "",
        *architecture_table(found),
        *(f"\n**{text}**" for text in wrong),
    ]
    artefact.write_csv(["size", *(name.replace(" ", "_") for name in COLUMNS)], records(found))
    artefact.write_markdown("Architectures", lines)
    for text in wrong:
        print(f"architecture_table: error: {text}", file=sys.stderr)
    return 1 if wrong else 0
