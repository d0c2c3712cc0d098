// The machine's own vectors, as the compiler has them (GCC/Clang vector extension): other instruction sets
// use the same source.
#pragma once

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

}  // namespace mpt
