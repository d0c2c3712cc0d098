// The innermost part of a matrix product: a few rows of A by a panel of columns of B, both packed, added up
// in registers.
//
// A sum of up to kDepth products is a chain of fused multiply-adds in the order of its terms, wherever in a
// block its element lies: it has the same bits with vectors of any width and blocks of any size
// (docs/numerics.md "GEMMs").
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cpu/tile_vector.h"
#include "device/gemm.h"

namespace mpt {

// Two vectors a row, and as many rows as leave registers for these and what they are multiplied by:
// 14 x 32 sums with AVX-512, 6 x 16 with AVX2.
inline constexpr int kKernelVectors = 2, kKernelRows = (kTileRegisters - 4) / kKernelVectors;
inline constexpr int64_t kPanelColumns = int64_t{kKernelVectors} * kTileLanes;
inline constexpr int64_t kDepth = 256;  // terms

// Packed rows of A lie kRowStride apart, where each is contiguous: not a power of two, with which all of them
// would share a few sets of the first cache. Where the rows of a term lie together, as in a transposed A,
// terms lie kTermStride apart.
inline constexpr int64_t kRowStride = kDepth + 16;
inline constexpr int64_t kTermStride = kKernelRows > 8 ? 16 : 8;
static_assert(kKernelRows <= kTermStride);

// Lines of memory that a call asks for, one every kTermsPerLine terms: all at once they would keep what is
// needed now from the first cache.
inline constexpr int64_t kTermsPerLine = 8, kUpcomingLines = kDepth / kTermsPerLine;

struct KernelCall {
  const float* a;  // [rows, depth], packed
  const float* b;  // [depth, kPanelColumns]
  int64_t depth;   // up to kDepth
  float alpha;
  Accumulate accumulate;
  float* d;  // [rows, vectors * kTileLanes]: alpha A B, added to what is there or in its place
  int64_t ldd;
  const std::byte* const* upcoming;  // kUpcomingLines addresses that will be read soon
};

// rows: 1 to kKernelRows; vectors: 1 to kKernelVectors.
void run_kernel(int rows, int vectors, Transpose layout_of_a, const KernelCall& call);

}  // namespace mpt
