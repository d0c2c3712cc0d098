#include "ranks/transport_checks.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/bf16.h"
#include "ranks/transport.h"

namespace mpt {
namespace {

constexpr int64_t kBlock = 2048;  // elements; their sums stay in L1

void check_count(const Transport& of, std::span<const Tensor> parts) {
  check(int64_t(parts.size()) == of.size(), "{} parts for {} ranks", parts.size(), of.size());
}

template <class T>
void set_block(const T* from, int64_t n, float* sum) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sum[i] = to_float(from[i]);
}
template <class T>
void add_block(const T* from, int64_t n, float* sum) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sum[i] += to_float(from[i]);
}

// Works block by block; a block of `sum` is written after it has been read from all parts, so `sum`
// may alias a part.
template <class T>
void sum_parts(std::span<const Tensor> parts, const Tensor& sum) {
  std::array<float, kBlock> block;
  for (int64_t first = 0; first < sum.elements(); first += kBlock) {
    const int64_t n = std::min(kBlock, sum.elements() - first);
    set_block(parts[0].as<T>() + first, n, block.data());
    for (const Tensor& part : parts.subspan(1)) add_block(part.as<T>() + first, n, block.data());
    std::memcpy(sum.as<float>() + first, block.data(), size_t(n) * sizeof(float));
  }
}

}  // namespace

void check_reduce_scatter(const Transport& of, std::span<const Tensor> parts, const Tensor& sum) {
  check_count(of, parts);
  for (const Tensor& part : parts) {
    check(part.contiguous() || part.elements() == 0,
          "part [{},{}] with row stride {} is not contiguous", part.rows, part.cols, part.stride);
    check(part.dtype == parts[0].dtype && (part.dtype == DType::kF32 || part.dtype == DType::kBF16),
          "parts of types {} and {}; all must be fp32 or all bf16", name_of(parts[0].dtype),
          name_of(part.dtype));
  }
  const Tensor& own = parts[size_t(of.rank())];
  check(sum.dtype == DType::kF32 && sum.elements() == own.elements() &&
            (sum.contiguous() || sum.elements() == 0),
        "the sum has {} elements of type {}; expected {} contiguous elements of fp32",
        sum.elements(), name_of(sum.dtype), own.elements());
}

void check_all_gather(const Transport& of, std::span<const Tensor> parts) {
  check_count(of, parts);
  for (const Tensor& part : parts)
    check(part.contiguous() || part.elements() == 0,
          "part [{},{}] with row stride {} is not contiguous", part.rows, part.cols, part.stride);
}

void check_all_reduce_max(const Tensor& values) {
  check(values.dtype == DType::kF32 && (values.contiguous() || values.elements() == 0),
        "all_reduce_max of {} [{},{}] with row stride {}; expected contiguous fp32",
        name_of(values.dtype), values.rows, values.cols, values.stride);
}

void check_gather_host(const Transport& of, int64_t mine_bytes, int64_t all_bytes) {
  check(all_bytes == of.size() * mine_bytes, "cannot gather {} bytes from each of {} ranks into {}",
        mine_bytes, of.size(), all_bytes);
}

void check_root(const Transport& of, int64_t root) {
  check(root >= 0 && root < of.size(), "root rank {} of {} is out of range", root, of.size());
}

int64_t sent_by_reduce_scatter(const Transport& of, std::span<const Tensor> parts) {
  int64_t bytes = 0;
  for (const Tensor& part : parts) bytes += packed_bytes(part);
  return bytes - packed_bytes(parts[size_t(of.rank())]);
}
int64_t sent_by_all_gather(const Transport& of, std::span<const Tensor> parts) {
  return (of.size() - 1) * packed_bytes(parts[size_t(of.rank())]);
}
int64_t sent_by_all_reduce_max(const Transport& of, const Tensor& values) {
  return (of.size() - 1) * packed_bytes(values);
}

void sum_in_rank_order(std::span<const Tensor> parts, const Tensor& sum) {
  if (parts[0].dtype == DType::kF32)
    sum_parts<float>(parts, sum);
  else
    sum_parts<bf16>(parts, sum);
}

// Uses comparisons because std::fmax is a call per element. Works block by block, as above.
void max_over_ranks(std::span<const float* const> values, std::span<float> largest) {
  std::array<float, kBlock> block;
  for (int64_t first = 0; first < int64_t(largest.size()); first += kBlock) {
    const int64_t n = std::min(kBlock, int64_t(largest.size()) - first);
    set_block(values[0] + first, n, block.data());
    for (const float* const of_rank : values.subspan(1)) {
      const float* const from = of_rank + first;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float x = from[i], most = block[size_t(i)];
        block[size_t(i)] = x > most || most != most ? x : most;
      }
    }
    std::memcpy(largest.data() + first, block.data(), size_t(n) * sizeof(float));
  }
}

}  // namespace mpt
