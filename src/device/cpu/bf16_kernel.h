// GEMM kernels built on instructions that multiply pairs of BF16 numbers: a few rows of A times a
// panel of columns of B, both packed (bf16_packing.h).
//
// For the results see docs/numerics.md "Dot products of BF16 numbers".
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/bf16_dot.h"
#include "device/gemm.h"

namespace mpt {

// Two adjacent terms of a row of A or a column of B, the first one in the low half.
using Bf16Pair = uint32_t;

inline constexpr int64_t kPairDepth = 512;    // most terms that a call sums
inline constexpr int64_t kPairsPerTile = 16;  // packed terms are padded to a multiple of this many
                                              // pairs
inline constexpr int kPairLanes = 16;         // columns per vector

// A kernel's largest tile, in rows and vectors of columns. For vdpbf16ps it is the tile of 24 sums
// with the fewest loads: on Zen 4 a tile of 14 x 2 is bound by its loads, not its sums.
inline constexpr int kAvx512Rows = 6, kAvx512Vectors = 4;
inline constexpr int kAmxTileRows = 16, kAmxRows = 2 * kAmxTileRows, kAmxVectors = 2;
constexpr int64_t pair_columns(int vectors) { return int64_t{vectors} * kPairLanes; }

// Stride of packed rows; not a power of two, so that they do not compete for a few sets of L1.
inline constexpr int64_t kPairRowStride = kPairDepth / 2 + 16;
inline constexpr int64_t kPairsPerLine = 8;  // one cache line is prefetched per this many pairs

// Rows of A, packed: pair p of row r is data[r row_stride + p pair_stride].
struct PairRows {
  const Bf16Pair* data;
  int64_t row_stride, pair_stride;
  [[nodiscard]] PairRows from(int64_t row, int64_t pair) const {
    return {data + row * row_stride + pair * pair_stride, row_stride, pair_stride};
  }
};

struct PairKernelCall {
  int rows;           // 1 to the kernel's maximum
  int vectors;        // number of column vectors: 1 to the kernel's maximum
  PairRows a;         // for AMX, pair_stride is 1, and reads extend to whole tiles of rows
  const Bf16Pair* b;  // [pairs, columns of the kernel's most vectors]
  int64_t pairs;      // for AMX, a multiple of kPairsPerTile
  float alpha;
  Accumulate accumulate;
  float* d;  // [rows, vectors * kPairLanes]: alpha A B, added to d or replacing it
  int64_t ldd;
  // Addresses to prefetch, one every kPairsPerLine pairs, or null.
  const std::byte* const* prefetched = nullptr;
};

void run_avx512_kernel(const PairKernelCall& call);
void run_amx_kernel(const PairKernelCall& call);

// Rounds numbers to BF16 like VCVTNEPS2BF16: to nearest, subnormals to zero. Needs AVX512_BF16. The
// first takes `count` pairs of horizontal neighbours; the second pairs vertical neighbours in x
// [rows, columns] and writes [rows / 2, columns]. Both counts are multiples of 16, rows of 2.
void round_neighbours(const float* x, int64_t count, Bf16Pair* to);
void round_rows(const float* x, int64_t rows, int64_t columns, Bf16Pair* to);

// Sets the shape of a thread's tiles; required around calls of run_amx_kernel().
class AmxTiles {
 public:
  AmxTiles();
  ~AmxTiles();
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

}  // namespace mpt
