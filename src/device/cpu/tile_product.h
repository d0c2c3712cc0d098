// Small dense products for the tiles of attention: C (+)= A B with B's rows contiguous, held in registers.
//
// A block of outputs takes three quarters of the vector registers, rows of B and one broadcast of A the rest:
// 6 x 16 outputs with the 16 registers of AVX2, 8 x 48 or 6 x 64 with the 32 of AVX-512.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/host_device.h"
#include "device/cpu/tile_vector.h"
#include "device/gemm.h"

namespace mpt {

// A[i][k] = a[i * row_stride + k * col_stride]: any layout, transposed ones included.
struct TileA {
  const float* data;
  int64_t row_stride;
  int64_t col_stride;
};

// What of a product over a causal tile counts: scores exist where the key is not behind the query.
enum class Causal : uint8_t {
  kNo,         // all of it
  kOutput,     // of C the columns up to the row's own; what the others get is undefined
  kUpToRow,    // A[i][k] is 0 for k > i
  kFromRowOn,  // A[i][k] is 0 for k < i
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
  Causal causal = Causal::kNo;
};

inline constexpr int64_t kTileColumns = 16;

template <int kRows, int kVectors, Accumulate kAccumulate>
MPT_ALWAYS_INLINE inline void tile_block(const TileProduct& p, int64_t row, int64_t col) {
  TileVector sums[kRows][kVectors];
  float* c = p.c + row * p.ldc + col;
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kAccumulate == Accumulate::kYes)
        sums[i][v] = tile_vector_at(c + i * p.ldc + v * kTileLanes);
      else
        sums[i][v] = TileVector{};
    }
  const int64_t first = p.causal == Causal::kFromRowOn ? row : 0,
                end = p.causal == Causal::kUpToRow ? std::min(row + kRows, p.k) : p.k;
  const float* a = p.a.data + row * p.a.row_stride + first * p.a.col_stride;
  const float* b = p.b + first * p.ldb + col;
  for (int64_t k = first; k < end; ++k, a += p.a.col_stride, b += p.ldb) {
    TileVector of_b[kVectors];
    for (int v = 0; v < kVectors; ++v) of_b[v] = tile_vector_at(b + v * kTileLanes);
    for (int i = 0; i < kRows; ++i)
      for (int v = 0; v < kVectors; ++v) sums[i][v] += a[i * p.a.row_stride] * of_b[v];
  }
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v) tile_vector_at(c + i * p.ldc + v * kTileLanes) = sums[i][v];
}

// All rows of kVectors vectors of columns.
template <int kVectors, Accumulate kAccumulate>
void tile_columns(const TileProduct& p, int64_t col) {
  int64_t row = p.causal == Causal::kOutput ? col : 0;
  const auto rows = [&]<int kRows>() {
    for (; row + kRows <= p.m; row += kRows) tile_block<kRows, kVectors, kAccumulate>(p, row, col);
  };
  rows.template operator()<kTileRegisters * 3 / 4 / kVectors>();
  rows.template operator()<4>();
  rows.template operator()<1>();
}

template <Accumulate kAccumulate>
void tile_product(const TileProduct& p) {
  int64_t col = 0;
  const auto columns = [&]<int kVectors>() {
    for (; col + kVectors * kTileLanes <= p.n; col += kVectors * kTileLanes)
      tile_columns<kVectors, kAccumulate>(p, col);
  };
  if constexpr (kTileLanes < kTileColumns) {
    columns.template operator()<kTileColumns / kTileLanes>();
  } else {
    if (p.causal != Causal::kOutput) {  // whose narrow columns leave more rows out
      columns.template operator()<4>();
      columns.template operator()<3>();
    }
    columns.template operator()<2>();
    columns.template operator()<1>();
  }
}

}  // namespace mpt
