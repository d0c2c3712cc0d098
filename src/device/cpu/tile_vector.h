// The machine's own vectors, as the compiler has them (GCC/Clang vector extension): other instruction sets
// use the same source.
#pragma once

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace mpt {

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
inline const TileVector& tile_vector_at(const float* x) { return *reinterpret_cast<const TileVector*>(x); }

// a b + c rounded once, where the machine has that. Where equal bits are promised this is called by name:
// whether the compiler contracts a * b + c depends on its options.
#if defined(__AVX512F__) || defined(__FMA__) || defined(__aarch64__)
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
#else
  return a * b + c;
#endif
}

}  // namespace mpt
