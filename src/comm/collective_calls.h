// What all transports ask of a call's arguments, count as sent, and compute alike.
#pragma once

#include <cstdint>
#include <span>

#include "comm/transport.h"
#include "core/tensor.h"

namespace mpt {

// Of a view's elements; 0 of an empty one whatever its stride.
inline int64_t packed_bytes(const Tensor& t) { return t.elements() * size_of(t.dtype); }

// Throw LogicError unless the arguments are what Transport says.
void check_reduce_scatter(const Transport& of, std::span<const Tensor> parts, const Tensor& sum);
void check_all_gather(const Transport& of, std::span<const Tensor> parts);
void check_all_reduce_max(const Tensor& values);
void check_gather_host(const Transport& of, int64_t mine_bytes, int64_t all_bytes);
void check_root(const Transport& of, int64_t root);

// Bytes that a rank sends: every part to its owner; the own part, or its values, to every other rank.
int64_t sent_by_reduce_scatter(const Transport& of, std::span<const Tensor> parts);
int64_t sent_by_all_gather(const Transport& of, std::span<const Tensor> parts);
int64_t sent_by_all_reduce_max(const Transport& of, const Tensor& values);

// sum[i] = parts[0][i] + parts[1][i] + ..., each addition in fp32, from left to right. parts: what each rank
// gave, [1, n] of one type, fp32 or bf16, in host memory; sum fp32 [1, n], which may be one of them.
void sum_in_rank_order(std::span<const Tensor> parts, const Tensor& sum);

// largest[i] = fmax over ranks of values[rank][i]; NaN where all are. `largest` may be one of them.
void max_over_ranks(std::span<const float* const> values, std::span<float> largest);

}  // namespace mpt
