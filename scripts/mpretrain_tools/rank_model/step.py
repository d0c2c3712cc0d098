"""The time of a step: the device and the queue of collectives beside it, event by event, on a
machine of assumed figures.
"""

import dataclasses
import typing

from .case import OPTIMIZERS, SIZE, ceil_div
from .exchange import (
    buckets,
    exchanged,
    linears_in_fp8,
    norm_pieces,
    own_elements,
    partition,
    stored_bytes,
)


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
    flops: dict  # by format of the product
    achieved: float  # share of them that large products and attention reach together
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


# Peak figures of NVIDIA's data sheets for H100 SXM (dense), HGX H100 with NVLink 4 (18 links of 25
# GB/s) and one 400 Gbit/s adapter a GPU, four fifths of memory and links; latencies and shares of
# LL, LL128 and Simple from NCCL's own tuning tables. `achieved`, `kernel` and `copy_launch` are
# guesses: nothing of this program has been measured on several GPUs.
H100 = Machine(
    "8 x H100 SXM a node",
    {"fp32": 67e12, "bf16": 989e12, "fp8": 1979e12},
    achieved=0.4,
    memory=80e9,
    memory_bandwidth=3.35e12 * 0.8,
    kernel=2.5e-6,
    copy_launch=2.5e-6,
    node=8,
    intra=450e9 * 0.8,
    inter=50e9 * 0.8,
    protocols=(
        Protocol(0.6e-6, 2.7e-6, 0.5, 35e9),
        Protocol(1.9e-6, 4.0e-6, 0.92),
        Protocol(3.4e-6, 14e-6, 1.0),
    ),
)


def ring(machine, ranks, bytes_of_all):
    """Seconds of a reduce-scatter or all-gather of that many bytes in all, by the fastest protocol.

    Every rank sends to the next one; rings that share the bytes leave a node by an adapter each.
    """
    if ranks == 1:
        return 0.0
    nodes = ceil_div(ranks, machine.node)
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
    nodes = ceil_div(ranks, machine.node)
    return begin + 2 * (min(ranks, machine.node) - 1) * intra + 2 * (nodes - 1).bit_length() * inter


class Work(typing.NamedTuple):
    """Seconds of a group of parameters: forward and backward of a micro-batch, and making its new
    weights readable.
    """

    forward: float
    backward: float
    refresh: float


def kernels(case):
    """Of a layer: forward; backward. Counted in model/llama.cpp."""
    fp8 = case.regime.compute == "fp8"
    forward = 9 + fp8
    return forward, 17 + 5 * fp8 + forward * case.batch.recompute


def group_work(case, machine):
    regime, shape, n = case.regime, case.shape, case.tokens
    rate = {name: flops * machine.achieved for name, flops in machine.flops.items()}
    plain = rate["fp32" if regime.compute == "fp32" else "bf16"]
    product = 2 * n * shape.layer_products / (rate["fp8"] if regime.compute == "fp8" else plain)
    forward = product + 2 * n * shape.hidden * case.batch.seq_len / plain
    fewest = [k * machine.kernel for k in kernels(case)]
    copied = 0.0  # bytes that casts of a layer's weights move
    if regime.compute == "fp8":
        copied = (
            stored_bytes(case) / shape.parameters + (2 if case.backend == "cuda" else 1)
        ) * shape.layer_products
    layer = Work(
        max(forward, fewest[0]),
        max((2 + case.batch.recompute) * forward, fewest[1]),
        copied / machine.memory_bandwidth,
    )
    head = 2 * n * shape.vocab * shape.hidden / plain
    embedding = 2 * n * shape.hidden * SIZE[regime.storage] / machine.memory_bandwidth
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

    def wait(self, ticket):
        self.compute = max(self.compute, ticket)


@dataclasses.dataclass(frozen=True)
class Step:
    """Seconds."""

    total: float
    computing: float  # forward, backward and update of the busiest rank
    exchanging: float  # of the side queue, beside or not
    launches: int  # copies and kernels that pack and unpack

    @property
    def exposed(self):
        """In which the device waits for other ranks."""
        return self.total - self.computing


def bucket_seconds(case, machine):
    """What the side queue takes for every bucket: ([gradients], [weights], launches). A single
    staging buffer: in turn.
    """
    parts, cut = exchanged(case), partition(case)
    container = (
        SIZE["fp32" if case.gradient_container("linear") == "fp32" else "bf16"]
        / SIZE[case.gradient_reduce]
    )
    scaled = {"block_fp8": 2, "nvfp4": 2}.get(case.regime.weights, 1)
    reduce, gather, launches = [], [], 0
    for b, stretches in enumerate(cut):
        count, own = len(stretches), sum(s.rank == 0 for s in stretches)
        wire = sum(parts.gradients[b])
        copied = wire * (1 + container) + max(parts.gradients[b]) * 3
        reduce.append(
            copied / machine.memory_bandwidth
            + (count + own) * machine.copy_launch
            + ring(machine, case.ranks, wire)
        )
        launches += count + own
        rounds = parts.weights if case.sharded else parts.sums
        stored = sum(rounds[b])
        pieces = scaled if case.sharded else 1
        gather.append(
            2 * stored / machine.memory_bandwidth
            + pieces * count * machine.copy_launch
            + ring(machine, case.ranks, stored)
        )
        launches += pieces * count
    if not case.sharded:
        reduce, gather = [r + g for r, g in zip(reduce, gather)], [0.0] * len(gather)
    return reduce, gather, launches


def update_seconds(case, machine):
    """Weights and states read and written once, the gradient read once, by the rank that has most;
    the norm of gradients.
    """
    moments, residuals = OPTIMIZERS[case.optimizer]
    p = case.shape.parameters
    own = max(own_elements(case)) if case.sharded else p
    a_parameter = (
        2 * stored_bytes(case) / p
        + 2 * (moments * SIZE[case.regime.state] + 2 * residuals)
        + 2 * SIZE[case.gradient_container("linear")]
    )
    return (
        own * a_parameter / machine.memory_bandwidth
        + 8 * norm_pieces(case) / machine.memory_bandwidth
    )


def simulate(case, machine, work=None, update=None):
    """A step of the rank that has most rows, as train/step_work.cpp and train/data_parallel.cpp
    enqueue it.

    `work` of every group and seconds of the `update`: measured ones in the place of the machine's.
    """
    work = work or group_work(case, machine)
    update, q = update_seconds(case, machine) if update is None else update, Queues(machine)
    micro_batches = case.micro_batches
    computing = sum(w.refresh + micro_batches * (w.forward + w.backward) for w in work) + update
    if case.alone:
        return Step(computing, computing, 0.0, 0)
    of_bucket = {group: b for b, bucket in enumerate(buckets(case)) for group in bucket}
    firsts = {bucket[0]: b for b, bucket in enumerate(buckets(case))}
    reduce, gather, launches = bucket_seconds(case, machine)
    amaxes = tree(machine, case.ranks) if linears_in_fp8(case) else 0.0
    tickets = [q.run(seconds) for seconds in gather]
    for i in range(micro_batches):
        for group, w in enumerate(work):
            if i == 0:
                q.wait(tickets[of_bucket[group]])
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
    norm = 8 * norm_pieces(case) if case.sharded else 0
    q.wait(
        q.run(ring(machine, case.ranks, 8 * case.batch.rows) + ring(machine, case.ranks, norm))
    )  # losses; partial sums
    q.work(update)
    return Step(q.compute, computing, q.busy, launches)


def efficiency(case, machine):
    """Tokens a second of a GPU over those of one that has the whole batch to itself (and memory for
    it).
    """
    return (
        simulate(dataclasses.replace(case, ranks=1), machine).total
        / case.ranks
        / simulate(case, machine).total
    )


# What a step would take if one cost of exchanging were nothing.
def without_bytes(machine):
    protocols = tuple(p._replace(at_most=float("inf")) for p in machine.protocols)
    return dataclasses.replace(machine, intra=1e18, inter=1e18, protocols=protocols)


def without_latency(machine):
    protocols = tuple(p._replace(intra_latency=0.0, inter_latency=0.0) for p in machine.protocols)
    return dataclasses.replace(machine, protocols=protocols, small=(0.0, 0.0, 0.0))


def without_launches(machine):
    return dataclasses.replace(machine, copy_launch=0.0)
