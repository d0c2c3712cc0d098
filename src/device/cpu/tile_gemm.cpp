#include "device/cpu/tile_gemm.h"

#include <algorithm>

#include "device/cpu/gemm_kernel.h"

namespace mpt {
namespace {

template <int kRows, int kVectors, Accumulate kAccumulate>
MPT_ALWAYS_INLINE inline void tile_block(const TileGemm& p, int64_t row, int64_t col) {
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
      for (int v = 0; v < kVectors; ++v) add_product(sums[i][v], a[i * p.a.row_stride], of_b[v]);
  }
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v) tile_vector_at(c + i * p.ldc + v * kTileLanes) = sums[i][v];
}

// Computes kVectors vectors of columns, for all rows that need them.
template <int kVectors, Accumulate kAccumulate>
void tile_columns(const TileGemm& p, int64_t col) {
  int64_t row = p.causal == Causal::kOutput ? col : 0;
  const auto rows = [&]<int kRows>() {
    for (; row + kRows <= p.m; row += kRows) tile_block<kRows, kVectors, kAccumulate>(p, row, col);
  };
  rows.template operator()<kTileRegisters * 3 / 4 / kVectors>();
  rows.template operator()<4>();
  rows.template operator()<1>();
}

template <Accumulate kAccumulate>
void all_columns(const TileGemm& p) {
  int64_t col = 0;
  const auto columns = [&]<int kVectors>() {
    for (; col + kVectors * kTileLanes <= p.n; col += kVectors * kTileLanes)
      tile_columns<kVectors, kAccumulate>(p, col);
  };
  if constexpr (kTileLanes < kTileColumns) {
    columns.template operator()<kTileColumns / kTileLanes>();
  } else {
    if (p.causal != Causal::kOutput) {  // kOutput: narrower columns skip more rows
      columns.template operator()<4>();
      columns.template operator()<3>();
    }
    columns.template operator()<2>();
    columns.template operator()<1>();
  }
}

}  // namespace

void tile_gemm(Accumulate accumulate, const TileGemm& gemm) {
  if (accumulate == Accumulate::kYes)
    all_columns<Accumulate::kYes>(gemm);
  else
    all_columns<Accumulate::kNo>(gemm);
}

}  // namespace mpt
