// Shared by all transports: argument checks, byte counts, reductions.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "ranks/transport.h"

namespace mpt {

// Bytes of a view's elements; 0 for an empty view regardless of its stride.
inline int64_t packed_bytes(const Tensor& t) { return t.elements() * size_of(t.dtype); }

// Throw LogicError unless the arguments meet Transport's contract.
void check_reduce_scatter(const Transport& of, std::span<const Tensor> parts, const Tensor& sum);
void check_all_gather(const Transport& of, std::span<const Tensor> parts);
void check_all_reduce_max(const Tensor& values);
void check_gather_host(const Transport& of, int64_t mine_bytes, int64_t all_bytes);
void check_root(const Transport& of, int64_t root);

// Bytes sent by a rank. Reduce-scatter: every part to its owner. All-gather and all-reduce: its own
// part or values to every other rank.
int64_t sent_by_reduce_scatter(const Transport& of, std::span<const Tensor> parts);
int64_t sent_by_all_gather(const Transport& of, std::span<const Tensor> parts);
int64_t sent_by_all_reduce_max(const Transport& of, const Tensor& values);

// sum[i] = parts[0][i] + parts[1][i] + ..., added in fp32 from left to right. parts: one per rank,
// [1, n] of one type, fp32 or bf16, in host memory. sum: fp32 [1, n]; may alias one of the parts.
void sum_in_rank_order(std::span<const Tensor> parts, const Tensor& sum);

// largest[i] = fmax over ranks of values[rank][i]; NaN if all are. `largest` may alias one of them.
void max_over_ranks(std::span<const float* const> values, std::span<float> largest);

}  // namespace mpt
