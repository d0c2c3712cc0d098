"""Memory of a rank by purpose, buffer by buffer (model/weight_store, model/activations,
optim/optimizer, train/parameter_exchange).
"""

import functools

from .case import APOLLO_RANK, FP8_HISTORY, OPTIMIZERS, SIZE, UNIT, align_up, ceil_div
from .exchange import Piece, exchanged, linears_in_fp8, losses_of, norm_pieces, partition, pieces_of

PURPOSES = [
    "weights",
    "compute weights",
    "gradients",
    "optimizer state",
    "activations",
    "logits",
    "scratch",
    "data",
]


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
        yield specs[i], sum(s.stored_rows for s in specs[i : i + specs[i].fused])
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
    """[rows, out, in] of the kinds of linear layers and of the head, the latter in rows of a
    chunk.
    """
    c, f, n = case.shape.hidden, case.shape.stored_intermediate, case.tokens
    return [(n, 3 * c, c), (n, c, c), (n, 2 * f, c), (n, c, f)], (
        case.loss_chunk,
        case.shape.vocab,
        c,
    )


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
    for _ in range(
        case.shape.layers + 3
    ):  # inputs of the layers; final_residual, final_norm, branch
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
    for stretch in (
        s for bucket in partition(case) for s in bucket if s.rank == rank or not case.sharded
    ):
        spec = stretch.spec
        span = Piece("u8", spec.cols, spec.stored_cols, UNIT).span(
            spec, stretch.first, stretch.count
        )
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
    channels, add = (
        max(max(s.rows, s.cols) for s in specs),
        functools.partial(memory.add, "scratch"),
    )
    add("fp32", max(s.rows * s.cols for s in specs))
    add(
        "fp32",
        max(
            [ceil_div(s.rows, 32) * APOLLO_RANK * s.cols for s in specs if s.rows < s.cols],
            default=0,
        ),
    )
    add("fp32", channels, APOLLO_RANK)
    add("fp64", 2, channels)
    add("fp32", channels)


def add_optimizer_scratch(memory, case, rank):
    """The tables of functors are left out: some hundred bytes a parameter tensor."""
    memory.add("scratch", "fp64", norm_pieces(case))
    memory.add("scratch", "fp64", ceil_div(norm_pieces(case), 1024))
    if case.regime.weights in ("block_fp8", "nvfp4"):
        memory.add("scratch", "fp32", max(s.rows for s in case.specs if s.kind == "linear") + 1)
    updated = {
        s.spec for bucket in partition(case) for s in bucket if s.rank == rank or not case.sharded
    }
    add_projection_scratch(memory, [spec for spec in updated if case.projected(spec)])


def add_exchange(memory, case, rank):
    parts = exchanged(case)
    memory.add("scratch", "u8", max(sum(p) for kind in parts for p in kind))
    own = max(p[rank] for p in parts.gradients) // SIZE[case.gradient_reduce]
    if case.gradient_reduce != "fp32":
        memory.add("scratch", "fp32", own)
    kinds = {s.spec.kind for bucket in partition(case) for s in bucket if s.rank == rank}
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
