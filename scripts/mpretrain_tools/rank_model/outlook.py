"""What designs beyond this one would take: sharded gradients and weights, tensor parallelism. None
of them exists in the program.
"""

import dataclasses

from .case import SIZE
from .step import group_work, ring


@dataclasses.dataclass(frozen=True)
class Next:
    """Bytes: held by a rank at the least and the most, and sent in a step."""

    memory: float
    gathers: float
    reductions: float


def live_layers(case):
    """Of two layers or the head: weights as stored and as GEMMs read them, and gradients, all
    whole.
    """
    shape = case.shape
    largest = max(2 * shape.layer_weights, shape.vocab * shape.hidden)
    copies = 2 if case.in_fp8 else 0
    return largest * (case.stored_bytes_a_parameter + copies + case.gradient_bytes_a_parameter)


def sharded_further(case, weights):
    """ZeRO-2 (`weights` whole) or ZeRO-3 over the same ranges: gradients are kept by their owners,
    and with ZeRO-3 weights too.

    Gradients are reduced after every micro-batch; weights gathered as they are stored, for forward
    and for backward of each.
    """
    now, p, others = case.counted, case.shape.parameters, (case.ranks - 1) / case.ranks
    held = now.total - now.memory["gradients"] + SIZE["fp32"] * p / case.ranks + live_layers(case)
    gathers = 1
    if weights == "sharded":
        whole = now.memory["weights"] + now.memory["compute weights"]
        held -= whole - now.stored_bytes / case.ranks
        gathers = 2 * now.micro_batches
    return Next(
        held,
        gathers * now.stored_bytes * others,
        now.micro_batches * SIZE[case.gradient_reduce] * p * others,
    )


def tensor_parallel(case, machine, ways):
    """(seconds of all-reduces, seconds of computing) of a micro-batch whose layers are cut `ways`
    times, within a node.

    Four all-reduces of [tokens, C] in BF16 a layer, two of them in backward; recomputing a layer
    makes two more.
    """
    count = (4 + 2 * case.batch.recompute) * case.shape.layers
    one = 2 * ring(machine, ways, case.tokens * case.shape.hidden * 2)
    computing = sum(w.forward + w.backward for w in group_work(case, machine)) / ways
    return count * one, computing
