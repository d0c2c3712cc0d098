"""Which rank owns what of the parameters, and the bytes that they send each other
(precision/partition, train/parameter_exchange).
"""

import dataclasses
import functools
import typing

from .case import PIECE_UNITS, SIZE, UNIT, Spec, align_up, ceil_div

PART_ALIGNMENT = 64  # bytes, of a stretch within what ranks exchange


@dataclasses.dataclass(frozen=True)
class Piece:
    """Memory of an encoded tensor whose columns belong to units: `unit_cols` of them to one."""

    dtype: str
    cols: int
    stored_cols: int
    unit_cols: int

    def span(self, spec, first, count):
        """Bytes from the first element of some units to their last, padding between rows
        included.
        """
        if count == 0:
            return 0
        begin = first // spec.per_row * self.stored_cols + first % spec.per_row * self.unit_cols
        last = first + count - 1
        end = last // spec.per_row * self.stored_cols + min(
            (last % spec.per_row + 1) * self.unit_cols, self.cols
        )
        return (end - begin) * SIZE[self.dtype]


@functools.cache
def pieces_of(weights, cols, stored_cols):
    if weights == "block_fp8":
        return (
            Piece("e4m3", cols, stored_cols, UNIT),
            Piece("fp16", ceil_div(cols, 128), ceil_div(stored_cols, 128), 2),
        )
    if weights == "nvfp4":
        return (
            Piece("u8", 8 * ceil_div(cols, 16), 8 * ceil_div(stored_cols, 16), UNIT // 2),
            Piece("e4m3", ceil_div(cols, 16), ceil_div(stored_cols, 16), UNIT // 16),
        )
    return (Piece(weights, cols, stored_cols, UNIT),)


def stored_bytes(case):
    """Of the logical elements and scales of all weights: what a full copy of them takes to send."""
    total = 0
    for spec in case.specs:
        weights = case.regime.weights_of(spec.kind)
        total += sum(
            spec.rows * piece.cols * SIZE[piece.dtype]
            for piece in pieces_of(weights, spec.cols, spec.cols)
        )
        total += 4 * (weights == "nvfp4")
    return total


# --- buckets and who owns what
# ---------------------------------------------------------------------------


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
    low = unit // PIECE_UNITS * PIECE_UNITS
    high = min(low + PIECE_UNITS, spec.units)
    return (
        low if wanted - elements_up_to(spec, low) <= elements_up_to(spec, high) - wanted else high
    )


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Consecutive units of a parameter that a rank owns."""

    rank: int
    spec: Spec
    first: int
    count: int

    @property
    def elements(self):
        return elements_up_to(self.spec, self.first + self.count) - elements_up_to(
            self.spec, self.first
        )


def cut_bucket(specs, whole, ranks):
    """The stretches of a bucket whose tensors may be cut between pieces, but for those that are
    `whole`.
    """
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
    return cut(
        dataclasses.replace(
            case,
            batch=None,
            regime=None,
            sharded=True,
            optimizer=case.optimizer == "apollo_e" and "apollo_e",
        )
    )


def specs_of_buckets(case):
    return [tuple(s for g in bucket for s in case.groups[g]) for bucket in buckets(case)]


@functools.lru_cache(maxsize=64)
def cut(case):
    alike = {
        specs: cut_bucket(specs, case.projected, case.ranks)
        for specs in set(specs_of_buckets(case))
    }
    made = [list(alike[specs]) for specs in specs_of_buckets(case)]
    if case.optimizer == "apollo_e":
        give_whole_tensors(case, made)
    return made


def give_whole_tensors(case, made):
    """Largest first, each to the rank that has least by then."""
    load = [0] * case.ranks
    for stretch in (s for bucket in made for s in bucket):
        load[stretch.rank] += stretch.elements
    whole = [
        (b, s)
        for b, bucket in enumerate(buckets(case))
        for g in bucket
        for s in case.groups[g]
        if case.projected(s)
    ]
    for b, spec in sorted(whole, key=lambda item: -item[1].rows * item[1].cols):
        rank = load.index(min(load))
        load[rank] += spec.rows * spec.cols
        made[b].append(Stretch(rank, spec, 0, spec.units))


def own_elements(case):
    """Of every rank."""
    return owned(
        dataclasses.replace(
            case, batch=None, regime=None, optimizer=case.optimizer == "apollo_e" and "apollo_e"
        )
    )


@functools.lru_cache(maxsize=64)
def owned(case):
    elements = [0] * case.ranks
    for stretch in (s for bucket in partition(case) for s in bucket):
        elements[stretch.rank] += stretch.elements
    return elements


def laid_out(case, bucket, memory_of):
    """Bytes of every rank's part: aligned stretches, made equal where it adds an eighth or less."""
    parts = [0] * case.ranks
    for stretch in bucket:
        parts[stretch.rank] += sum(align_up(n, PART_ALIGNMENT) for n in memory_of(stretch))
    most, total = max(parts), sum(parts)
    return [most] * case.ranks if most * case.ranks <= total + total // 8 else parts


def gradient_parts(case, bucket, dtype):
    return laid_out(
        case,
        bucket,
        lambda s: [
            Piece(dtype, s.spec.cols, s.spec.stored_cols, UNIT).span(s.spec, s.first, s.count)
        ],
    )


def weight_parts(case, bucket):
    def memory(s):
        weights = case.regime.weights_of(s.spec.kind)
        spans = [
            p.span(s.spec, s.first, s.count)
            for p in pieces_of(weights, s.spec.cols, s.spec.stored_cols)
        ]
        return spans + [4] * (weights == "nvfp4" and s.first == 0)

    return laid_out(case, bucket, memory)


class Parts(typing.NamedTuple):
    """Of every bucket: bytes of every rank's part."""

    gradients: list
    weights: list  # as they are stored
    sums: list  # of gradients; where nothing is sharded they go round in the place of weights


def exchanged(case):
    return parts_of(
        dataclasses.replace(case, batch=None, optimizer=case.optimizer == "apollo_e" and "apollo_e")
    )


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
    return sum(ceil_div(s.units, PIECE_UNITS) for s in case.specs)


def losses_of(case, rank):
    """Micro-batches that a rank has rows of; each gives a sum of losses."""
    rows = case.batch.rows
    return ceil_div(
        (rank + 1) * rows // case.ranks - rank * rows // case.ranks, case.micro_batch_rows
    )


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
    pieces = sum(
        ceil_div(s.count, PIECE_UNITS)
        for bucket in partition(case)
        for s in bucket
        if s.rank == rank
    )
    return Volume(
        gradients=sum(sum(p) - p[rank] for p in parts.gradients)
        + sum(p[rank] * others for p in parts.sums),
        weights=sum(p[rank] * others for p in parts.weights),
        norm=8 * pieces * others * case.sharded,
        losses=8 * losses_of(case, rank) * others,
        amaxes=4 * 3 * linears_in_fp8(case) * others * case.micro_batches,
    )
