// Building blocks of CPU kernels: native vectors, the GEMM's register tile, and small dense GEMMs
// for the tiles of attention.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "core/host_device.h"
#include "device/cpu/software_fma.h"
#include "device/gemm.h"

namespace mpt {

// Native vectors by the GCC/Clang vector extension, so that all instruction sets share the source.
#if defined(__AVX512F__)
inline constexpr int kTileLanes = 16, kTileRegisters = 32;
#elif defined(__aarch64__)
inline constexpr int kTileLanes = 4, kTileRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kTileLanes = 8, kTileRegisters = 16;
#else
inline constexpr int kTileLanes = 4, kTileRegisters = 16;
#endif
using TileVector = float __attribute__((vector_size(4 * kTileLanes), aligned(4), may_alias));

inline TileVector& tile_vector_at(float* x) { return *reinterpret_cast<TileVector*>(x); }
inline const TileVector& tile_vector_at(const float* x) {
  return *reinterpret_cast<const TileVector*>(x);
}

// a b + c rounded once, on machines with fused multiply-add, and on others if MPT_SOFTWARE_FMA
// requests the same bits there (cmake/MptPackage.cmake). Code that promises equal bits calls this
// by name, because contraction of a * b + c depends on compiler options.
#if defined(__AVX512F__) || defined(__FMA__) || defined(__aarch64__) || defined(MPT_SOFTWARE_FMA)
inline constexpr bool kTileFuses = true;
#else
inline constexpr bool kTileFuses = false;
#endif
inline TileVector fma_of(TileVector a, TileVector b, TileVector c) {
#if defined(__AVX512F__)
  return TileVector(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
#elif defined(__FMA__)
  return TileVector(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
#elif defined(__aarch64__)
  return TileVector(vfmaq_f32(float32x4_t(c), float32x4_t(a), float32x4_t(b)));
#elif defined(MPT_SOFTWARE_FMA)
  return software_fma(a, b, c);
#else
  return a * b + c;
#endif
}

// sum = a b + sum in the same way, for the files that CMakeLists.txt compiles with contraction: GCC
// 12 copies registers around the intrinsic, which costs a tenth of a GEMM.
inline void add_product(TileVector& sum, float a, const TileVector& b) {
#if defined(MPT_SOFTWARE_FMA)
  sum = software_fma(a - TileVector{}, b, sum);
#else
  sum += a * b;
#endif
}
// a b + c for scalars.
inline float multiply_add(float a, float b, float c) {
  return kTileFuses ? std::fma(a, b, c) : a * b + c;
}

// --- the GEMM's register tile --------------------------------------------------------------------

// Multiplies a few rows of A by a panel of columns of B, both packed, with sums in registers.
//
// A sum of up to kDepth terms is a chain of fused multiply-adds in term order, wherever its element
// is in a block, so the bits do not depend on vector width or block size (docs/numerics.md
// "GEMMs").

// Two vectors per row, and as many rows as leave registers for the operands: 14 x 32 sums with
// AVX-512, 6 x 16 with AVX2.
inline constexpr int kKernelVectors = 2, kKernelRows = (kTileRegisters - 4) / kKernelVectors;
inline constexpr int64_t kPanelColumns = int64_t{kKernelVectors} * kTileLanes;
inline constexpr int64_t kDepth = 256;  // terms

// If rows of A are contiguous, packed rows are kRowStride apart: not a power of two, so that they
// do not compete for a few sets of L1. If the elements of a term are contiguous, as in a transposed
// A, terms are kTermStride apart.
inline constexpr int64_t kRowStride = kDepth + 16;
inline constexpr int64_t kTermStride = kKernelRows > 8 ? 16 : 8;
static_assert(kKernelRows <= kTermStride);

// Cache lines that a call prefetches, one every kTermsPerLine terms: all at once would evict from
// L1 what is needed now.
inline constexpr int64_t kTermsPerLine = 8, kPrefetchLines = kDepth / kTermsPerLine;

struct KernelCall {
  const float* a;  // [rows, depth], packed
  const float* b;  // [depth, kPanelColumns]
  int64_t depth;   // up to kDepth
  float alpha;
  Accumulate accumulate;
  float* d;  // [rows, vectors * kTileLanes]: alpha A B, added to d or replacing it
  int64_t ldd;
  const std::byte* const* prefetched;  // kPrefetchLines addresses to prefetch
};

// rows: 1 to kKernelRows; vectors: 1 to kKernelVectors.
void run_kernel(int rows, int vectors, Transpose layout_of_a, const KernelCall& call);

}  // namespace mpt
