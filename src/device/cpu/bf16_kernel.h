// Kernels of GEMMs by instructions that multiply pairs of BF16 numbers: those of a few rows of A by
// a panel of columns of B, both packed (bf16_packing.h).
//
// docs/numerics.md "Products of BF16 numbers" says what they compute.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/bf16_products.h"
#include "device/gemm.h"

namespace mpt {

// Two neighbouring terms of a row of A or a column of B, the first one in the low half.
using Bf16Pair = uint32_t;

inline constexpr int64_t kPairDepth = 512;    // terms that a call sums at most
inline constexpr int64_t kPairsPerTile = 16;  // packed terms are a multiple of as many pairs
inline constexpr int kPairLanes = 16;         // columns of a vector

// The largest tile of a kernel, in rows and vectors of columns. That of vdpbf16ps is the one of 24
// sums that loads least: its loads, not its sums, are what a tile of 14 x 2 waits for on Zen 4.
inline constexpr int kAvx512Rows = 6, kAvx512Vectors = 4;
inline constexpr int kAmxTileRows = 16, kAmxRows = 2 * kAmxTileRows, kAmxVectors = 2;
constexpr int64_t pair_columns(int vectors) { return int64_t{vectors} * kPairLanes; }

// Of packed rows; not a power of two, so that they do not compete for a few sets of L1.
inline constexpr int64_t kPairRowStride = kPairDepth / 2 + 16;
inline constexpr int64_t kPairsPerLine = 8;  // a line is prefetched every so many pairs

// Rows of A, packed: pair p of row r is data[r row_stride + p pair_stride].
struct PairRows {
  const Bf16Pair* data;
  int64_t row_stride, pair_stride;
  [[nodiscard]] PairRows from(int64_t row, int64_t pair) const {
    return {data + row * row_stride + pair * pair_stride, row_stride, pair_stride};
  }
};

struct PairKernelCall {
  int rows;           // 1 to the kernel's most
  int vectors;        // of columns: 1 to the kernel's most
  PairRows a;         // for AMX pair_stride is 1, and it reads as many rows as make whole tiles
  const Bf16Pair* b;  // [pairs, columns of the kernel's most vectors]
  int64_t pairs;      // for AMX a multiple of kPairsPerTile
  float alpha;
  Accumulate accumulate;
  float* d;  // [rows, vectors * kPairLanes]: alpha A B, added to d or replacing it
  int64_t ldd;
  // Addresses to prefetch, one every kPairsPerLine pairs, or null.
  const std::byte* const* prefetched = nullptr;
};

void run_avx512_kernel(const PairKernelCall& call);
void run_amx_kernel(const PairKernelCall& call);

// Rounds numbers to BF16 as VCVTNEPS2BF16 does: to nearest, those below the normal ones to zero.
// Needs AVX512_BF16. First of `count` pairs of neighbours; then of numbers above one another in
// x [rows, columns], to [rows / 2, columns]. Both counts are multiples of 16, rows of 2.
void round_neighbours(const float* x, int64_t count, Bf16Pair* to);
void round_rows(const float* x, int64_t rows, int64_t columns, Bf16Pair* to);

// What a thread needs around calls of run_amx_kernel(): the shape of its tiles.
class AmxTiles {
 public:
  AmxTiles();
  ~AmxTiles();
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

}  // namespace mpt
