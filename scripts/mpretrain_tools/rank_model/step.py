"""The time of a step: the device and the queue of collectives beside it, event by event, on a
machine of assumed figures.
"""

import dataclasses
import math
import typing

from .. import machines
from .case import COMPUTE, SIZE


class Protocol(typing.NamedTuple):
    """How a ring passes bytes on: seconds of a step within and between nodes, and its share of a
    link, or bytes/s at most.
    """

    intra_latency: float
    inter_latency: float
    share: float
    at_most: float = float("inf")


@dataclasses.dataclass(frozen=True)
class Machine:
    """Assumed figures. FLOP/s, bytes/s, seconds, bytes; links are of one GPU in one direction."""

    name: str
    flops: dict  # by format of the GEMM
    achieved: float  # share of them that large GEMMs and attention reach together
    memory: float
    memory_bandwidth: float
    kernel: float  # shortest time that a kernel takes, launch included
    copy_launch: float  # the same of a copy that packs or unpacks
    node: int
    intra: float  # bytes/s
    inter: float  # of its adapter
    protocols: tuple
    small: tuple = (
        6.8e-6,
        0.6e-6,
        5.0e-6,
    )  # of a reduction of few bytes over a tree: begin, step within a node, between nodes
    beside: bool = True  # collectives run beside computing rather than in its place


def machine_named(name):
    """As machines.json has it."""
    found = machines.figures(name)
    return Machine(**{**found, "protocols": tuple(Protocol(*of) for of in found["protocols"])})


H100 = machine_named("H100")


def ring(machine, ranks, bytes_of_all):
    """Seconds of a reduce-scatter or all-gather of that many bytes in all, by the fastest protocol.

    Every rank sends to the next one; rings that share the bytes leave a node by an adapter each.
    """
    if ranks == 1:
        return 0.0
    nodes = math.ceil(ranks / machine.node)
    between = nodes if nodes > 1 else 0
    rate = min(machine.intra, machine.node * machine.inter) if between else machine.intra
    sent = bytes_of_all * (ranks - 1) / ranks
    return min(
        max(ranks - 1 - between, 0) * p.intra_latency
        + between * p.inter_latency
        + sent / min(rate * p.share, p.at_most)
        for p in machine.protocols
    )


def tree(machine, ranks):
    """Seconds of a reduction of few bytes to all."""
    begin, intra, inter = machine.small
    nodes = math.ceil(ranks / machine.node)
    return begin + 2 * (min(ranks, machine.node) - 1) * intra + 2 * (nodes - 1).bit_length() * inter


class Work(typing.NamedTuple):
    """Seconds of a group of parameters: forward and backward of a micro-batch, and making its new
    weights readable.
    """

    forward: float
    backward: float
    refresh: float


def kernels(case):
    """Of a layer: forward; backward. Counted in model/llama.cpp, casts of weights in
    model/linears.cpp.
    """
    casts = 7 * case.casts_for_use
    forward = 9 + case.in_fp8 + casts
    return forward, 17 + 5 * case.in_fp8 + casts + forward * case.batch.recompute


def group_work(case, machine):
    shape, n = case.shape, case.tokens
    rate = {name: flops * machine.achieved for name, flops in machine.flops.items()}
    storage = "fp32" if case.regime == "fp32" else "bf16"
    plain = rate[storage]
    gemms = 2 * n * shape.layer_weights / rate[COMPUTE[case.regime]]
    forward = gemms + 2 * n * shape.hidden * case.batch.seq_len / plain
    fewest = [k * machine.kernel for k in kernels(case)]
    # Seconds to read a layer's weights, and to write their codes in one layout.
    read = case.in_fp8 * case.stored_bytes_a_parameter * shape.layer_weights
    read /= machine.memory_bandwidth
    written = case.in_fp8 * shape.layer_weights / machine.memory_bandwidth
    cast = case.casts_for_use * (read + written)
    layer = Work(
        max(forward + cast, fewest[0]),
        max((2 + case.batch.recompute) * forward + (1 + case.batch.recompute) * cast, fewest[1]),
        read if case.casts_for_use else read + written,
    )
    head = 2 * n * shape.vocab * shape.hidden / plain
    embedding = 2 * n * shape.hidden * SIZE[storage] / machine.memory_bandwidth
    return [
        Work(embedding, 2 * embedding, 0.0),
        *([layer] * shape.layers),
        Work(head, 2 * head, 0.0),
    ]


class Queues:
    """When the device and the queue of collectives beside it are done with what they were given."""

    def __init__(self, machine):
        self.beside = machine.beside
        self.compute = self.side = self.busy = 0.0

    def work(self, seconds):
        self.compute += seconds

    def run(self, seconds):
        """Begins when the device has done what it was given so far; returns when it is done."""
        self.side = max(self.side, self.compute) + seconds
        self.busy += seconds
        if not self.beside:
            self.compute = self.side
        return self.side

    def wait(self, event):
        self.compute = max(self.compute, event)


@dataclasses.dataclass(frozen=True)
class Step:
    """Seconds."""

    total: float
    computing: float  # forward, backward and update of the busiest rank
    exchanging: float  # of the communication stream, beside or not
    launches: int  # copies and kernels that pack and unpack

    @property
    def exposed(self):
        """In which the device waits for other ranks."""
        return self.total - self.computing


def round_seconds(case, machine, parts, moved, copies):
    """Of a bucket in one direction: so many bytes moved by so many copies, and the ring."""
    return (
        moved / machine.memory_bandwidth
        + copies * machine.copy_launch
        + ring(machine, case.ranks, parts["bytes"])
    )


def bucket_seconds(case, machine):
    """What the communication stream takes for every bucket: ([gradients], [weights], launches). A
    single staging buffer: in turn.
    """
    reduce, gather, launches = [], [], 0
    for bucket in case.counted.buckets:
        # Gradients of all ranks are packed, and of the sum what is this rank's own is unpacked.
        parts = bucket["reduced"]
        copies = parts["spans"] + parts["own_spans"]
        copied = parts["bytes"] + parts["memory_bytes"] + 3 * parts["largest_part_bytes"]
        reduce.append(round_seconds(case, machine, parts, copied, copies))
        launches += copies
        # Of weights what is its own is packed, and the rest unpacked.
        parts = bucket["gathered"]
        copies = parts["spans"]
        gather.append(round_seconds(case, machine, parts, 2 * parts["bytes"], copies))
        launches += copies
    return reduce, gather, launches


def update_seconds(case, machine):
    """Weights and states read and written once, the gradient read once, by the rank that has most;
    the norm of gradients.
    """
    counted = case.counted
    a_parameter = (
        2 * case.stored_bytes_a_parameter
        + 2 * counted.state_bytes_a_parameter
        + 2 * case.gradient_bytes_a_parameter
    )
    moved = counted.most_elements * a_parameter + 8 * counted.norm_sums
    return moved / machine.memory_bandwidth


def simulate(case, machine, work=None, update=None):
    """A step of the rank that has most rows, as train/step/training_model.cpp and
    train/step/data_parallel.cpp enqueue it.

    `work` of every group and seconds of the `update`: measured ones in the place of the machine's.
    """
    work = work or group_work(case, machine)
    update, q = update_seconds(case, machine) if update is None else update, Queues(machine)
    counted = case.counted
    micro_batches = counted.micro_batches
    computing = sum(w.refresh + micro_batches * (w.forward + w.backward) for w in work) + update
    if case.alone:
        return Step(computing, computing, 0.0, 0)
    firsts = {bucket["first_group"]: b for b, bucket in enumerate(counted.buckets)}
    reduce, gather, launches = bucket_seconds(case, machine)
    amaxes = tree(machine, case.ranks) if case.in_fp8 else 0.0
    events = [q.run(seconds) for seconds in gather]
    for i in range(micro_batches):
        for group, w in enumerate(work):
            if i == 0:
                if group in firsts:
                    q.wait(events[firsts[group]])
                q.work(w.refresh)
            q.work(w.forward)
        if amaxes:
            q.wait(q.run(amaxes))
        for group in reversed(range(len(work))):
            q.work(work[group].backward)
            if i == micro_batches - 1 and group in firsts:
                q.run(reduce[firsts[group]])
        if amaxes:
            q.wait(q.run(amaxes))
    q.wait(q.side)
    losses, norm = 8 * case.batch.rows, 8 * counted.norm_sums
    q.wait(q.run(ring(machine, case.ranks, losses) + ring(machine, case.ranks, norm)))
    q.work(update)
    return Step(q.compute, computing, q.busy, launches)


def efficiency(case, machine):
    """Tokens a second of a GPU over those of one that has the whole batch to itself (and memory for
    it).
    """
    alone = simulate(dataclasses.replace(case, ranks=1), machine)
    return alone.total / case.ranks / simulate(case, machine).total


# What a step would take if one cost of exchanging were nothing.
def without_bytes(machine):
    protocols = tuple(p._replace(at_most=float("inf")) for p in machine.protocols)
    return dataclasses.replace(machine, intra=1e18, inter=1e18, protocols=protocols)


def without_latency(machine):
    protocols = tuple(p._replace(intra_latency=0.0, inter_latency=0.0) for p in machine.protocols)
    return dataclasses.replace(machine, protocols=protocols, small=(0.0, 0.0, 0.0))


def without_launches(machine):
    return dataclasses.replace(machine, copy_launch=0.0)
