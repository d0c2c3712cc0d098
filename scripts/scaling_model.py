#!/usr/bin/env python3
"""Predicts what training over ranks takes: memory by purpose, bytes sent, and the time of a step by a small event simulation.

    scripts/scaling_model.py --model 350m --regime nvfp4 --ranks 1,8,64
    scripts/scaling_model.py --check build/cpu/mpretrain      # against what `mpretrain plan` counts

Memory and bytes follow the rules of the program (model/weight_store, model/activations, precision/partition,
train/parameter_exchange, optim/optimizer) buffer by buffer. Times are predictions: they rest on the assumed figures of
a `Machine`, of which none was measured here.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import re
import subprocess
import sys
import typing

CONFIGS = pathlib.Path(__file__).resolve().parents[1] / "configs"
SIZE = {"fp32": 4, "bf16": 2, "fp16": 2, "fp64": 8, "i32": 4, "u8": 1, "e4m3": 1, "e5m2": 1}
UNIT = 256             # elements
PIECE = 16 * UNIT      # elements between two places where a tensor may be cut
PART_ALIGNMENT = 64    # bytes, of a stretch within what ranks exchange
PURPOSES = ["weights", "compute weights", "gradients", "optimizer state", "activations", "logits", "scratch", "data"]


def ceil_div(n, by):
    return -(-n // by)


def align_up(n, multiple):
    return ceil_div(n, multiple) * multiple


# --- what is trained -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Shape:
    hidden: int
    intermediate: int
    layers: int
    heads: int
    vocab: int

    @property
    def stored_intermediate(self):
        return align_up(self.intermediate, 16)

    @property
    def groups(self):
        return self.layers + 2

    @property
    def layer_products(self):
        return 4 * self.hidden**2 + 3 * self.hidden * self.intermediate

    @property
    def parameters(self):
        return 2 * self.vocab * self.hidden + self.layers * self.layer_products + (2 * self.layers + 1) * self.hidden


@dataclasses.dataclass(frozen=True)
class Spec:
    """A parameter: logical and stored shape, and how many neighbours from it on are one matrix."""

    kind: str
    rows: int
    cols: int
    stored_rows: int
    stored_cols: int
    fused: int = 1

    @functools.cached_property
    def per_row(self):
        return ceil_div(self.cols, UNIT)

    @property
    def units(self):
        return self.rows * self.per_row


def matrix(kind, rows, cols, stored_rows=None, stored_cols=None, fused=1):
    return Spec(kind, rows, cols, stored_rows or rows, stored_cols or cols, fused)


@functools.lru_cache(maxsize=None)
def parameter_groups(shape):
    """The parameters of every group: embedding, layers, final norm and head."""
    c, f, stored = shape.hidden, shape.intermediate, shape.stored_intermediate
    linear = functools.partial(matrix, "linear")
    layer = [matrix("norm", 1, c), linear(c, c, fused=3), linear(c, c), linear(c, c), linear(c, c), matrix("norm", 1, c),
             linear(f, c, stored_rows=stored, fused=2), linear(f, c, stored_rows=stored), linear(c, f, stored_cols=stored)]
    return [[matrix("embedding", shape.vocab, c)], *([layer] * shape.layers),
            [matrix("norm", 1, c), matrix("head", shape.vocab, c)]]


def read_config(path):
    """A file of configs/base; // comments are whole lines or follow a value."""
    text = "\n".join(re.sub(r"(^|\s)//.*$", "", line) for line in path.read_text(encoding="utf-8").splitlines())
    return json.loads(text)


@dataclasses.dataclass(frozen=True)
class Batch:
    seq_len: int
    rows: int             # of a step
    micro_batch_rows: int
    recompute: bool


def from_config(name):
    config = read_config(CONFIGS / "base" / f"{name}.json")
    m, b = config["model"], config["batch"]
    rows = b["tokens_per_step"] // b["seq_len"]
    shape = Shape(m["hidden_size"], m["intermediate_size"], m["num_hidden_layers"], m["num_attention_heads"], m["vocab_size"])
    recompute = config["train"].get("activation_recompute") == "block"
    return shape, Batch(b["seq_len"], rows, b.get("micro_batch_rows") or rows, recompute)


# LLaMA's 7B and 13B, and the widths of LLaMA 2 70B with as many keys as queries, which is what this program trains: 78 G
# parameters. About 4 M tokens a step, as LLaMA was trained.
LARGE = {"7b": (Shape(4096, 11008, 32, 32, 32000), Batch(2048, 2048, 1, True)),
         "13b": (Shape(5120, 13824, 40, 40, 32000), Batch(2048, 2048, 1, True)),
         "70b": (Shape(8192, 28672, 80, 64, 32000), Batch(4096, 1024, 1, True))}
SMALL = ["pico", "nano", "60m", "130m", "350m", "1b"]


def model(name):
    return LARGE[name] if name in LARGE else from_config(name)


@dataclasses.dataclass(frozen=True)
class Regime:
    """precision.weights, .compute, .optimizer_state and .gradient."""

    weights: str
    compute: str
    state: str = "bf16"
    gradient: str = "bf16"

    @property
    def storage(self):
        return "fp32" if self.compute == "fp32" else "bf16"

    def weights_of(self, kind):
        if kind == "linear":
            return self.weights
        return "fp32" if self.weights == "fp32" else "bf16"


REGIMES = {"fp32": Regime("fp32", "fp32", "fp32", "fp32"), "bf16": Regime("bf16", "bf16"), "bf16_fp8": Regime("bf16", "fp8"),
           "fp8": Regime("block_fp8", "fp8"), "nvfp4": Regime("nvfp4", "fp8")}
# Moments of a dense tensor, and what Kahan compensation adds.
OPTIMIZERS = {"adamw": (2, 0), "m_plus_adam": (3, 0), "adamw_kahan": (2, 1), "kahan": (3, 1), "apollo_e": (3, 0)}
APOLLO_RANK = 4
FP8_HISTORY = 1024


@dataclasses.dataclass(frozen=True)
class Case:
    """A run as one of its ranks sees it."""

    shape: Shape
    batch: Batch
    regime: Regime
    optimizer: str = "m_plus_adam"
    ranks: int = 1
    gradient_reduce: str = "fp32"
    bucket_mib: int = 32
    sharded: bool = True
    backend: str = "cuda"
    threads: int = 1  # of a CPU

    @property
    def alone(self):
        return self.ranks == 1

    @property
    def rows_of_most(self):
        return ceil_div(self.batch.rows, self.ranks)

    @property
    def micro_batch_rows(self):
        return min(self.batch.micro_batch_rows, self.rows_of_most)

    @property
    def micro_batches(self):
        return ceil_div(self.rows_of_most, self.micro_batch_rows)

    @property
    def tokens(self):
        """Of a micro-batch."""
        return self.micro_batch_rows * self.batch.seq_len

    @property
    def loss_chunk(self):
        logits = (256 if self.backend == "cuda" else 16) << 20
        return min(max(logits // self.shape.vocab // 16, 1) * 16, self.tokens)

    @property
    def groups(self):
        return parameter_groups(self.shape)

    @property
    def specs(self):
        return [spec for group in self.groups for spec in group]

    def projected(self, spec):
        return self.optimizer == "apollo_e" and spec.kind == "linear"

    def gradient_container(self, kind):
        """The type of a gradient's memory: FP32 where several additions meet in it."""
        additions = self.micro_batches * (self.ranks if not self.alone and self.gradient_reduce == "fp32" else 1)
        if kind == "head":
            additions *= ceil_div(self.tokens, self.loss_chunk)
        return "bf16" if self.regime.gradient == "bf16" and additions == 1 else "fp32"


# --- stored weights --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Piece:
    """Memory of an encoded tensor whose columns belong to units: `unit_cols` of them to one."""

    dtype: str
    cols: int
    stored_cols: int
    unit_cols: int

    def span(self, spec, first, count):
        """Bytes from the first element of some units to their last, padding between rows included."""
        if count == 0:
            return 0
        begin = first // spec.per_row * self.stored_cols + first % spec.per_row * self.unit_cols
        last = first + count - 1
        end = last // spec.per_row * self.stored_cols + min((last % spec.per_row + 1) * self.unit_cols, self.cols)
        return (end - begin) * SIZE[self.dtype]


@functools.lru_cache(maxsize=None)
def pieces_of(weights, cols, stored_cols):
    if weights == "block_fp8":
        return (Piece("e4m3", cols, stored_cols, UNIT), Piece("fp16", ceil_div(cols, 128), ceil_div(stored_cols, 128), 2))
    if weights == "nvfp4":
        return (Piece("u8", 8 * ceil_div(cols, 16), 8 * ceil_div(stored_cols, 16), UNIT // 2),
                Piece("e4m3", ceil_div(cols, 16), ceil_div(stored_cols, 16), UNIT // 16))
    return (Piece(weights, cols, stored_cols, UNIT),)


def stored_bytes(case):
    """Of the logical elements and scales of all weights: what a full copy of them takes to send."""
    total = 0
    for spec in case.specs:
        weights = case.regime.weights_of(spec.kind)
        total += sum(spec.rows * piece.cols * SIZE[piece.dtype] for piece in pieces_of(weights, spec.cols, spec.cols))
        total += 4 * (weights == "nvfp4")
    return total


# --- buckets and who owns what ---------------------------------------------------------------------------


def buckets(case):
    """Lists of groups, in order."""
    least = case.bucket_mib << 20
    made, size = [], least
    for group in reversed(range(case.shape.groups)):
        if size >= least:
            made.append([])
            size = 0
        made[-1].insert(0, group)
        size += sum(s.rows * s.cols for s in case.groups[group]) * SIZE[case.gradient_reduce]
    return made[::-1]


def elements_up_to(spec, units):
    return units // spec.per_row * spec.cols + units % spec.per_row * UNIT


def nearest_units(spec, wanted):
    """Whole pieces from the first on whose elements come nearest to `wanted`, in units."""
    if wanted >= spec.rows * spec.cols:
        return spec.units
    unit = wanted // spec.cols * spec.per_row + wanted % spec.cols // UNIT
    low = unit // 16 * 16
    high = min(low + 16, spec.units)
    return low if wanted - elements_up_to(spec, low) <= elements_up_to(spec, high) - wanted else high


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Consecutive units of a parameter that a rank owns."""

    rank: int
    spec: Spec
    first: int
    count: int

    @property
    def elements(self):
        return elements_up_to(self.spec, self.first + self.count) - elements_up_to(self.spec, self.first)


def cut_bucket(specs, whole, ranks):
    """The stretches of a bucket whose tensors may be cut between pieces, but for those that are `whole`."""
    cut = [spec for spec in specs if not whole(spec)]
    total, before, made, rank = sum(s.rows * s.cols for s in cut), 0, [], 0
    for spec in cut:
        begin, elements = 0, spec.rows * spec.cols
        while rank < ranks:
            wanted = total * (rank + 1) // ranks - before
            unit = nearest_units(spec, wanted) if wanted >= 0 else 0
            if unit > begin:
                made.append(Stretch(rank, spec, begin, unit - begin))
                begin = unit
            if wanted > elements:  # the rank has a part of the next tensor too
                break
            rank += 1
        before += elements
    return made


def partition(case):
    """Stretches by bucket. Neither batch nor formats of weights matter."""
    return cut(dataclasses.replace(case, batch=None, regime=None, sharded=True, optimizer=case.optimizer == "apollo_e" and "apollo_e"))


def specs_of_buckets(case):
    return [tuple(s for g in bucket for s in case.groups[g]) for bucket in buckets(case)]


@functools.lru_cache(maxsize=64)
def cut(case):
    alike = {specs: cut_bucket(specs, case.projected, case.ranks) for specs in set(specs_of_buckets(case))}
    made = [list(alike[specs]) for specs in specs_of_buckets(case)]
    if case.optimizer == "apollo_e":
        give_whole_tensors(case, made)
    return made


def give_whole_tensors(case, made):
    """Largest first, each to the rank that has least by then."""
    load = [0] * case.ranks
    for stretch in (s for bucket in made for s in bucket):
        load[stretch.rank] += stretch.elements
    whole = [(b, s) for b, bucket in enumerate(buckets(case)) for g in bucket for s in case.groups[g] if case.projected(s)]
    for b, spec in sorted(whole, key=lambda item: -item[1].rows * item[1].cols):
        rank = load.index(min(load))
        load[rank] += spec.rows * spec.cols
        made[b].append(Stretch(rank, spec, 0, spec.units))


def own_elements(case):
    """Of every rank."""
    return owned(dataclasses.replace(case, batch=None, regime=None, optimizer=case.optimizer == "apollo_e" and "apollo_e"))


@functools.lru_cache(maxsize=64)
def owned(case):
    elements = [0] * case.ranks
    for stretch in (s for bucket in partition(case) for s in bucket):
        elements[stretch.rank] += stretch.elements
    return elements


def laid_out(case, bucket, memory_of):
    """Bytes of every rank's part: aligned stretches, made equal where that adds at most an eighth."""
    parts = [0] * case.ranks
    for stretch in bucket:
        parts[stretch.rank] += sum(align_up(n, PART_ALIGNMENT) for n in memory_of(stretch))
    most, total = max(parts), sum(parts)
    return [most] * case.ranks if most * case.ranks <= total + total // 8 else parts


def gradient_parts(case, bucket, dtype):
    return laid_out(case, bucket, lambda s: [Piece(dtype, s.spec.cols, s.spec.stored_cols, UNIT).span(s.spec, s.first, s.count)])


def weight_parts(case, bucket):
    def memory(s):
        weights = case.regime.weights_of(s.spec.kind)
        spans = [p.span(s.spec, s.first, s.count) for p in pieces_of(weights, s.spec.cols, s.spec.stored_cols)]
        return spans + [4] * (weights == "nvfp4" and s.first == 0)

    return laid_out(case, bucket, memory)


class Parts(typing.NamedTuple):
    """Of every bucket: bytes of every rank's part."""

    gradients: list
    weights: list  # as they are stored
    sums: list     # of gradients; where nothing is sharded they go round in the place of weights


def exchanged(case):
    return parts_of(dataclasses.replace(case, batch=None, optimizer=case.optimizer == "apollo_e" and "apollo_e"))


@functools.lru_cache(maxsize=64)
def parts_of(case):
    def each(parts):
        if case.optimizer == "apollo_e":  # whole matrices go to different ranks
            return [parts(case, b) for b in partition(case)]
        alike = dict(zip(specs_of_buckets(case), partition(case)))
        of = {specs: parts(case, bucket) for specs, bucket in alike.items()}
        return [of[specs] for specs in specs_of_buckets(case)]

    gradients = each(functools.partial(gradient_parts, dtype=case.gradient_reduce))
    if case.sharded:
        return Parts(gradients, each(weight_parts), [])
    return Parts(gradients, [], each(functools.partial(gradient_parts, dtype=case.regime.gradient)))


def linears_in_fp8(case):
    return 4 * case.shape.layers if case.regime.compute == "fp8" else 0


def norm_pieces(case):
    return sum(ceil_div(s.units, 16) for s in case.specs)


def losses_of(case, rank):
    """Micro-batches that a rank has rows of; each gives a sum of losses."""
    rows = case.batch.rows
    return ceil_div((rank + 1) * rows // case.ranks - rank * rows // case.ranks, case.micro_batch_rows)


class Volume(typing.NamedTuple):
    """Bytes that a rank sends in a step, every part once to each rank that needs it."""

    gradients: int
    weights: int
    norm: int = 0
    losses: int = 0
    amaxes: int = 0

    @property
    def small(self):
        return self.norm + self.losses + self.amaxes


def volume(case, rank=0):
    if case.alone:
        return Volume(0, 0)
    parts, others = exchanged(case), case.ranks - 1
    pieces = sum(ceil_div(s.count, 16) for bucket in partition(case) for s in bucket if s.rank == rank)
    return Volume(gradients=sum(sum(p) - p[rank] for p in parts.gradients) + sum(p[rank] * others for p in parts.sums),
                  weights=sum(p[rank] * others for p in parts.weights),
                  norm=8 * pieces * others * case.sharded,
                  losses=8 * losses_of(case, rank) * others,
                  amaxes=4 * 3 * linears_in_fp8(case) * others * case.micro_batches)


# --- memory ----------------------------------------------------------------------------------------------


class Memory:
    """Bytes by purpose, each buffer aligned as the device's allocator does it."""

    def __init__(self, alignment):
        self.alignment = alignment
        self.bytes = dict.fromkeys(PURPOSES, 0)

    def add(self, purpose, dtype, *extents):
        count = SIZE[dtype]
        for extent in extents:
            count *= extent
        self.bytes[purpose] += align_up(count, self.alignment)

    @property
    def total(self):
        return sum(self.bytes.values())


def fused_groups(specs):
    """Parameters that lie together: (the first, stored rows of all)."""
    i = 0
    while i < len(specs):
        yield specs[i], sum(s.stored_rows for s in specs[i:i + specs[i].fused])
        i += specs[i].fused


def add_weights(memory, case):
    regime = case.regime
    for first, rows in fused_groups(case.specs):
        weights = regime.weights_of(first.kind)
        if weights == regime.storage:
            memory.add("weights", weights, rows, first.stored_cols)
            continue
        for _ in range(first.fused):
            for piece in pieces_of(weights, first.cols, first.stored_cols):
                memory.add("weights", piece.dtype, first.stored_rows, piece.stored_cols)
            if weights == "nvfp4":
                memory.add("weights", "fp32", 1)
        if regime.compute != "fp8":
            memory.add("compute weights", regime.storage, rows, first.stored_cols)
    for first, rows in fused_groups(case.specs):
        memory.add("gradients", case.gradient_container(first.kind), rows, first.stored_cols)


def products(case):
    """[rows, out, in] of the kinds of linear layers and of the head, the latter in rows of a chunk."""
    c, f, n = case.shape.hidden, case.shape.stored_intermediate, case.tokens
    return [(n, 3 * c, c), (n, c, c), (n, 2 * f, c), (n, c, f)], (case.loss_chunk, case.shape.vocab, c)


def add_products(memory, case):
    linears, head = products(case)
    if case.regime.compute == "fp8":
        copies = 2 if case.backend == "cuda" else 1  # codes in rows, and transposed
        slots = linears_in_fp8(case)
        for count in (2 * slots, slots):
            memory.add("scratch", "fp32", FP8_HISTORY, count)
            for _ in range(5):
                memory.add("scratch", "fp32", count)
        for _ in range(case.shape.layers * copies):
            for _, out, into in linears:
                memory.add("compute weights", "e4m3", out, into)
        for _ in range(copies):
            memory.add("scratch", "e5m2", max(rows * out for rows, out, _ in linears))
    if case.backend == "cuda":
        memory.add("scratch", "u8", (32 << 20) + 1024)
        return
    add_widened_operands(memory, case, linears, head)


def add_widened_operands(memory, case, linears, head):
    """What a CPU's products copy to FP32: the largest a, b and d of any of them."""
    a = b = d = 0
    for kind, (rows, out, into) in [("linear", p) for p in linears] + [("head", head)]:
        narrow = case.regime.storage == "bf16"
        gradient = case.gradient_container(kind) == "bf16"
        a, b = max(a, narrow * rows * max(into, out)), max(b, narrow * into * max(out, rows))
        d = max(d, narrow * rows * max(out, into), gradient * out * into)
    for elements in (a, b, d):
        if elements:
            memory.add("scratch", "fp32", elements)


def add_activations(memory, case):
    n, c, f = case.tokens, case.shape.hidden, case.shape.stored_intermediate
    fp8, storage = case.regime.compute == "fp8", case.regime.storage
    add = functools.partial(memory.add, "activations")
    if fp8 and case.backend == "cuda":
        add("e4m3", n, max(c, f))
    operand = "e4m3" if fp8 else storage
    for _ in range(1 if case.batch.recompute else case.shape.layers):
        for width in (c, c, f):
            add(operand, n, width)
        for width in (3 * c, c, c, 2 * f):
            add(storage, n, width)
        add("fp32", n)
        add("fp32", n)
        add("fp32", case.micro_batch_rows * case.shape.heads, case.batch.seq_len)
    for _ in range(case.shape.layers + 3):  # inputs of the layers; final_residual, final_norm, branch
        add(storage, n, c)
    add("fp32", n)
    if fp8:
        add("e4m3", n, c)


def add_model_scratch(memory, case):
    n, c, f = case.tokens, case.shape.hidden, case.shape.stored_intermediate
    t, heads = case.batch.seq_len, case.shape.heads
    add = functools.partial(memory.add, "scratch")
    for _ in range(2):
        add("fp32", t, c // heads // 2)
        add(case.regime.storage, n, c)
    add(case.regime.storage, n, max(3 * c, f))
    add("fp32", min(ceil_div(n, 16), 2048) if case.backend == "cuda" else ceil_div(n, 64), c)
    add("u8", attention_scratch(case))
    for _ in range(2):
        memory.add("data", "i32", case.micro_batches, n)
    memory.add("data", "fp32", 1)
    memory.add("data", "i32", case.shape.vocab + 1)
    memory.add("data", "i32", case.micro_batches, n)
    memory.add("logits", "fp64", case.micro_batches)
    memory.add("logits", "fp32", n)
    memory.add("logits", case.regime.storage, case.loss_chunk, case.shape.vocab)


def attention_scratch(case):
    """By matrix products on a GPU (cuDNN's is of its own making); by tiles on a CPU."""
    t, heads, dim = case.batch.seq_len, case.shape.heads, case.shape.hidden // case.shape.heads
    if case.backend == "cuda":
        pair = 2 * t * align_up(t, 8) * 4
        return (32 << 20) + min(case.micro_batch_rows * heads, max((256 << 20) // pair, 1)) * pair
    tokens, tile = align_up(t, 48), 48 * align_up(dim, 16)
    square = tokens * align_up(dim, 16)
    floats = max(3 * square + tile + 48 * 48, 6 * square + 2 * tile + 2 * 48 * 48 + 2 * tokens)
    return 4 * case.threads * align_up(floats, 16)


def add_states(memory, case, rank):
    moments, residuals = OPTIMIZERS[case.optimizer]
    add = functools.partial(memory.add, "optimizer state")
    for stretch in (s for bucket in partition(case) for s in bucket if s.rank == rank or not case.sharded):
        spec = stretch.spec
        span = Piece("u8", spec.cols, spec.stored_cols, UNIT).span(spec, stretch.first, stretch.count)
        # Only a tensor that is held whole keeps the padding behind its last row.
        elements = spec.rows * spec.stored_cols if stretch.count == spec.units else span
        for _ in range(2 if case.projected(spec) else moments):
            add(case.regime.state, elements)
        for _ in range(residuals):
            add("bf16", elements)
        if case.projected(spec):
            add("fp32", max(spec.rows, spec.cols), APOLLO_RANK)
            add("fp32", APOLLO_RANK, min(spec.rows, spec.cols))


def add_projection_scratch(memory, specs):
    """What the projected matrices of a rank take turns to use."""
    if not specs:
        return
    channels, add = max(max(s.rows, s.cols) for s in specs), functools.partial(memory.add, "scratch")
    add("fp32", max(s.rows * s.cols for s in specs))
    add("fp32", max([ceil_div(s.rows, 32) * APOLLO_RANK * s.cols for s in specs if s.rows < s.cols], default=0))
    add("fp32", channels, APOLLO_RANK)
    add("fp64", 2, channels)
    add("fp32", channels)


def add_optimizer_scratch(memory, case, rank):
    """The tables of functors are left out: some hundred bytes a parameter tensor."""
    memory.add("scratch", "fp64", norm_pieces(case))
    memory.add("scratch", "fp64", ceil_div(norm_pieces(case), 1024))
    if case.regime.weights in ("block_fp8", "nvfp4"):
        memory.add("scratch", "fp32", max(s.rows for s in case.specs if s.kind == "linear") + 1)
    updated = {s.spec for bucket in partition(case) for s in bucket if s.rank == rank or not case.sharded}
    add_projection_scratch(memory, [spec for spec in updated if case.projected(spec)])


def add_exchange(memory, case, rank):
    parts = exchanged(case)
    memory.add("scratch", "u8", max(sum(p) for kind in parts for p in kind))
    own = max(p[rank] for p in parts.gradients) // SIZE[case.gradient_reduce]
    if case.gradient_reduce != "fp32":
        memory.add("scratch", "fp32", own)
    kinds = {s.kind for s in case.specs}
    if case.regime.gradient == "bf16" and any(case.gradient_container(k) == "fp32" for k in kinds):
        memory.add("scratch", "bf16", own)
    memory.add("logits", "fp64", sum(losses_of(case, r) for r in range(case.ranks)))


def memory_of(case, rank=0):
    memory = Memory(256 if case.backend == "cuda" else 64)
    add_weights(memory, case)
    add_products(memory, case)
    add_activations(memory, case)
    add_model_scratch(memory, case)
    add_states(memory, case, rank)
    add_optimizer_scratch(memory, case, rank)
    if not case.alone:
        add_exchange(memory, case, rank)
    return memory


# --- time ------------------------------------------------------------------------------------------------


class Protocol(typing.NamedTuple):
    """How a ring passes bytes on: seconds of a step within and between nodes, and its share of a link, or bytes/s at most."""

    intra_latency: float
    inter_latency: float
    share: float
    at_most: float = float("inf")


@dataclasses.dataclass(frozen=True)
class Machine:
    """Assumed figures. FLOP/s, bytes/s, seconds, bytes; links are of one GPU in one direction."""

    name: str
    flops: dict                 # by format of the product
    achieved: float             # share of them that large products and attention reach together
    memory: float
    memory_bandwidth: float
    kernel: float               # shortest time that a kernel takes, launch included
    copy_launch: float          # the same of a copy that packs or unpacks
    node: int
    intra: float                # bytes/s
    inter: float                # of its adapter
    protocols: tuple
    small: tuple = (6.8e-6, 0.6e-6, 5.0e-6)  # of a reduction of few bytes over a tree: begin, step within a node, between nodes
    beside: bool = True         # collectives run beside computing rather than in its place


# Peak figures of NVIDIA's data sheets for H100 SXM (dense), HGX H100 with NVLink 4 (18 links of 25 GB/s) and one 400 Gbit/s
# adapter a GPU, four fifths of memory and links; latencies and shares of LL, LL128 and Simple from NCCL's own tuning
# tables. `achieved`, `kernel` and `copy_launch` are guesses: nothing of this program has been measured on several GPUs.
H100 = Machine("8 x H100 SXM a node", {"fp32": 67e12, "bf16": 989e12, "fp8": 1979e12}, achieved=0.4, memory=80e9,
               memory_bandwidth=3.35e12 * 0.8, kernel=2.5e-6, copy_launch=2.5e-6, node=8, intra=450e9 * 0.8, inter=50e9 * 0.8,
               protocols=(Protocol(0.6e-6, 2.7e-6, 0.5, 35e9), Protocol(1.9e-6, 4.0e-6, 0.92), Protocol(3.4e-6, 14e-6, 1.0)))


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
    return min(max(ranks - 1 - between, 0) * p.intra_latency + between * p.inter_latency + sent / min(rate * p.share, p.at_most)
               for p in machine.protocols)


def tree(machine, ranks):
    """Seconds of a reduction of few bytes to all."""
    begin, intra, inter = machine.small
    nodes = ceil_div(ranks, machine.node)
    return begin + 2 * (min(ranks, machine.node) - 1) * intra + 2 * (nodes - 1).bit_length() * inter


class Work(typing.NamedTuple):
    """Seconds of a group of parameters: forward and backward of a micro-batch, and making its new weights readable."""

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
        copied = (stored_bytes(case) / shape.parameters + (2 if case.backend == "cuda" else 1)) * shape.layer_products
    layer = Work(max(forward, fewest[0]), max((2 + case.batch.recompute) * forward, fewest[1]), copied / machine.memory_bandwidth)
    head = 2 * n * shape.vocab * shape.hidden / plain
    embedding = 2 * n * shape.hidden * SIZE[regime.storage] / machine.memory_bandwidth
    return [Work(embedding, 2 * embedding, 0.0), *([layer] * shape.layers), Work(head, 2 * head, 0.0)]


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
    computing: float   # forward, backward and update of the busiest rank
    exchanging: float  # of the side queue, beside or not
    launches: int      # copies and kernels that pack and unpack

    @property
    def exposed(self):
        """In which the device waits for other ranks."""
        return self.total - self.computing


def bucket_seconds(case, machine):
    """What the side queue takes for every bucket: ([gradients], [weights], launches). A single staging buffer: in turn."""
    parts, cut = exchanged(case), partition(case)
    container = SIZE["fp32" if case.gradient_container("linear") == "fp32" else "bf16"] / SIZE[case.gradient_reduce]
    scaled = {"block_fp8": 2, "nvfp4": 2}.get(case.regime.weights, 1)
    reduce, gather, launches = [], [], 0
    for b, stretches in enumerate(cut):
        count, own = len(stretches), sum(s.rank == 0 for s in stretches)
        wire = max(parts.gradients[b]) * case.ranks
        copied = wire * (1 + container) + max(parts.gradients[b]) * 3
        reduce.append(copied / machine.memory_bandwidth + (count + own) * machine.copy_launch + ring(machine, case.ranks, wire))
        launches += count + own
        rounds = parts.weights if case.sharded else parts.sums
        stored = max(rounds[b]) * case.ranks
        pieces = scaled if case.sharded else 1
        gather.append(2 * stored / machine.memory_bandwidth + pieces * count * machine.copy_launch + ring(machine, case.ranks, stored))
        launches += pieces * count
    if not case.sharded:
        reduce, gather = [r + g for r, g in zip(reduce, gather)], [0.0] * len(gather)
    return reduce, gather, launches


def update_seconds(case, machine):
    """Weights and states read and written once, the gradient read once, by the rank that has most; the norm of gradients."""
    moments, residuals = OPTIMIZERS[case.optimizer]
    p = case.shape.parameters
    own = max(own_elements(case)) if case.sharded else p
    a_parameter = (2 * stored_bytes(case) / p + 2 * (moments * SIZE[case.regime.state] + 2 * residuals)
                   + 2 * SIZE[case.gradient_container("linear")])
    return own * a_parameter / machine.memory_bandwidth + 8 * norm_pieces(case) / machine.memory_bandwidth


def simulate(case, machine, work=None, update=None):
    """A step of the rank that has most rows, as train/step_work.cpp and train/data_parallel.cpp enqueue it.

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
    q.wait(q.run(ring(machine, case.ranks, 8 * case.batch.rows) + ring(machine, case.ranks, norm)))  # losses; partial sums
    q.work(update)
    return Step(q.compute, computing, q.busy, launches)


def efficiency(case, machine):
    """Tokens a second of a GPU over those of one that has the whole batch to itself (and memory for it)."""
    return simulate(dataclasses.replace(case, ranks=1), machine).total / case.ranks / simulate(case, machine).total


# What a step would take if one cost of exchanging were nothing.
def without_bytes(machine):
    protocols = tuple(p._replace(at_most=float("inf")) for p in machine.protocols)
    return dataclasses.replace(machine, intra=1e18, inter=1e18, protocols=protocols)


def without_latency(machine):
    protocols = tuple(p._replace(intra_latency=0.0, inter_latency=0.0) for p in machine.protocols)
    return dataclasses.replace(machine, protocols=protocols, small=(0.0, 0.0, 0.0))


def without_launches(machine):
    return dataclasses.replace(machine, copy_launch=0.0)


# --- what would come next --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Next:
    """Bytes: held by a rank at the least and the most, and sent in a step."""

    memory: float
    gathers: float
    reductions: float


def live_layers(case):
    """Of two layers or the head: weights as stored and as products read them, and gradients, all whole."""
    shape = case.shape
    largest = max(2 * shape.layer_products, shape.vocab * shape.hidden)
    copies = 2 if case.regime.compute == "fp8" else 0
    return largest * (stored_bytes(case) / shape.parameters + copies + SIZE[case.gradient_container("linear")])


def sharded_further(case, weights):
    """ZeRO-2 (`weights` whole) or ZeRO-3 over the same ranges: gradients are kept by their owners, and with ZeRO-3 weights too.

    Gradients are reduced after every micro-batch; weights gathered as they are stored, for forward and for backward of
    each.
    """
    now, shape, others = memory_of(case), case.shape, (case.ranks - 1) / case.ranks
    p, stored = shape.parameters, stored_bytes(case)
    held = now.total - now.bytes["gradients"] + SIZE["fp32"] * p / case.ranks + live_layers(case)
    gathers = 1
    if weights == "sharded":
        held -= (now.bytes["weights"] + now.bytes["compute weights"]) - stored / case.ranks
        gathers = 2 * case.micro_batches
    return Next(held, gathers * stored * others, case.micro_batches * SIZE[case.gradient_reduce] * p * others)


def tensor_parallel(case, machine, ways):
    """(seconds of all-reduces, seconds of computing) of a micro-batch whose layers are cut `ways` times, within a node.

    Four all-reduces of [tokens, C] in BF16 a layer, two of them in backward; recomputing a layer makes two more.
    """
    count = (4 + 2 * case.batch.recompute) * case.shape.layers
    one = 2 * ring(machine, ways, case.tokens * case.shape.hidden * 2)
    computing = sum(w.forward + w.backward for w in group_work(case, machine)) / ways
    return count * one, computing


# --- command line ----------------------------------------------------------------------------------------

# With configs/<size>_<name>.json: (regime, optimizer).
CHECKED = {"fp32": ("fp32", "m_plus_adam"), "bf16": ("bf16", "m_plus_adam"), "bf16_adamw": ("bf16", "adamw"),
           "bf16_kahan": ("bf16", "kahan"), "bf16_fp8": ("bf16_fp8", "m_plus_adam"), "fp8": ("fp8", "m_plus_adam"),
           "nvfp4": ("nvfp4", "m_plus_adam"), "bf16_apollo_e": ("bf16", "apollo_e")}


def planned(program, config, case, ranks_known):
    command = [program, "plan", "--json", "--config", str(config), "--set", f"device.type={case.backend}",
               *(["--set", f"device.threads={case.threads}"] if case.backend == "cpu" else [])]
    if ranks_known:
        command += ["--ranks", str(case.ranks), "--set", f"distributed.gradient_reduce={case.gradient_reduce}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"scaling_model.py: error: {' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def differences(counted, case):
    """Purpose, planned bytes, ours: what is not the same. Of scratch the tables of functors are not modelled."""
    memory = memory_of(case)
    for purpose in PURPOSES:
        theirs, ours = counted["allocated_bytes"][purpose], memory.bytes[purpose]
        if purpose == "scratch" and 0 <= theirs - ours <= 1024 * (len(case.specs) + 4):
            continue
        if theirs != ours:
            yield purpose, theirs, ours
    sent = volume(case)
    ours = {"gradients": sent.gradients, "weights": sent.weights, "sums_and_scales": sent.small}
    for kind, theirs in counted.get("bytes_sent_per_step", {}).items():
        if theirs != ours[kind]:
            yield f"sent {kind}", theirs, ours[kind]


def check(program, backend, ranks):
    """Every size, regime and optimizer that has a configuration, against the program's own plan."""
    wrong = cases = 0
    for size in SMALL:
        shape, batch = model(size)
        for name, (regime, optimizer) in CHECKED.items():
            config = CONFIGS / f"{size}_{name}.json"
            if not config.exists() or (size == "pico" and backend == "cuda"):
                continue
            for n, wire in [(n, w) for n in ranks for w in (("fp32", "bf16") if n > 1 else ("fp32",))]:
                case = Case(shape, batch, REGIMES[regime], optimizer, n, wire, backend=backend, threads=2)
                counted = planned(program, config, case, ranks != [1])
                cases += 1
                for what, theirs, ours in differences(counted, case):
                    wrong += 1
                    print(f"{config.stem}, {n} ranks, {wire}: {what}: plan {theirs:,}, model {ours:,}", file=sys.stderr)
    print(f"{cases} plans compared, {wrong} figures differ")
    return 1 if wrong else 0


def report(case, machine):
    memory, sent, step = memory_of(case), volume(case), simulate(case, machine)
    return {"ranks": case.ranks, "micro_batches": case.micro_batches, "buckets": len(buckets(case)),
            "memory_bytes": {**memory.bytes, "total": memory.total}, "bytes_sent_per_step": sent._asdict(),
            "predicted_step_seconds": step.total, "predicted_efficiency": efficiency(case, machine),
            "exchange_launches": step.launches}


def print_reports(reports):
    print(f"{'ranks':>6} {'GB a rank':>10} {'sent MB':>9} {'step ms':>9} {'efficiency':>10}   (times: predictions for {H100.name})")
    for r in reports:
        print(f"{r['ranks']:>6} {r['memory_bytes']['total'] / 1e9:>10.2f} {sum(r['bytes_sent_per_step'].values()) / 1e6:>9.1f} "
              f"{1e3 * r['predicted_step_seconds']:>9.2f} {r['predicted_efficiency']:>10.3f}")


def numbers(text):
    return [int(n) for n in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="350m", choices=SMALL + list(LARGE))
    parser.add_argument("--regime", default="nvfp4", choices=REGIMES)
    parser.add_argument("--optimizer", default="m_plus_adam", choices=OPTIMIZERS)
    parser.add_argument("--ranks", default=None, type=numbers, help="numbers of ranks, by commas")
    parser.add_argument("--gradient-reduce", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--bucket-mib", default=32, type=int)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", metavar="PROGRAM", help="compare with what `PROGRAM plan` counts, for --ranks (default 1)")
    parser.add_argument("--backend", default=None, choices=["cpu", "cuda"], help="default: cuda; of --check cpu")
    args = parser.parse_args()
    if args.check:
        return check(args.check, args.backend or "cpu", args.ranks or [1])
    shape, batch = model(args.model)
    reports = []
    for ranks in args.ranks or [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]:
        case = Case(shape, batch, REGIMES[args.regime], args.optimizer, ranks, args.gradient_reduce, args.bucket_mib,
                    backend=args.backend or "cuda")
        if batch.rows < ranks:
            print(f"{ranks} ranks: a step has {batch.rows} rows only", file=sys.stderr)
            continue
        reports.append(report(case, H100))
    print(json.dumps(reports, indent=1)) if args.json else print_reports(reports)
    return 0


if __name__ == "__main__":
    sys.exit(main())
