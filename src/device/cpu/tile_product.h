// Small dense products for the tiles of attention: C (+)= A B with B's rows contiguous, held in registers.
//
// Blocks of 6 x 16 outputs keep 12 vector accumulators, two of B and one broadcast of A: the 16 registers of
// AVX2. The vectors are the compiler's own (GCC/Clang vector extension), so other instruction sets use the
// same source.
#pragma once

#include <cstdint>

#include "device/gemm.h"

namespace mpt {

// A[i][k] = a[i * row_stride + k * col_stride]: any layout, transposed ones included.
struct TileA {
  const float* data;
  int64_t row_stride;
  int64_t col_stride;
};

struct TileProduct {
  int64_t m;  // any
  int64_t n;  // a multiple of kTileColumns
  int64_t k;
  TileA a;         // [m, k]
  const float* b;  // [k, n], rows ldb apart
  int64_t ldb;
  float* c;  // [m, n], rows ldc apart
  int64_t ldc;
};

inline constexpr int64_t kTileColumns = 16;

using TileVector = float __attribute__((vector_size(32), aligned(4), may_alias));

template <int kRows, Accumulate kAccumulate>
[[gnu::always_inline]] inline void tile_block(const TileProduct& p, int64_t row, int64_t col) {
  constexpr int kLanes = 8;
  TileVector low[kRows], high[kRows];
  float* c = p.c + row * p.ldc + col;
  for (int i = 0; i < kRows; ++i) {
    if constexpr (kAccumulate == Accumulate::kYes) {
      low[i] = *reinterpret_cast<const TileVector*>(c + i * p.ldc);
      high[i] = *reinterpret_cast<const TileVector*>(c + i * p.ldc + kLanes);
    } else {
      low[i] = high[i] = TileVector{};
    }
  }
  const float* a = p.a.data + row * p.a.row_stride;
  const float* b = p.b + col;
  for (int64_t k = 0; k < p.k; ++k, a += p.a.col_stride, b += p.ldb) {
    const TileVector b_low = *reinterpret_cast<const TileVector*>(b);
    const TileVector b_high = *reinterpret_cast<const TileVector*>(b + kLanes);
    for (int i = 0; i < kRows; ++i) {
      const float x = a[i * p.a.row_stride];
      low[i] += x * b_low;
      high[i] += x * b_high;
    }
  }
  for (int i = 0; i < kRows; ++i) {
    *reinterpret_cast<TileVector*>(c + i * p.ldc) = low[i];
    *reinterpret_cast<TileVector*>(c + i * p.ldc + kLanes) = high[i];
  }
}

template <Accumulate kAccumulate>
void tile_product(const TileProduct& p) {
  constexpr int kRows = 6;
  for (int64_t col = 0; col < p.n; col += kTileColumns) {
    int64_t row = 0;
    for (; row + kRows <= p.m; row += kRows) tile_block<kRows, kAccumulate>(p, row, col);
    for (; row + 2 <= p.m; row += 2) tile_block<2, kAccumulate>(p, row, col);
    if (row < p.m) tile_block<1, kAccumulate>(p, row, col);
  }
}

}  // namespace mpt
