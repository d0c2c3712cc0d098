// C (+)= A B for the tiles of attention, with contiguous rows of B, summed in registers.
//
// A block of outputs uses three quarters of the vector registers; rows of B and one broadcast of A
// use the rest: 6 x 16 outputs with the 16 registers of AVX2, 8 x 48 or 6 x 64 with the 32 of
// AVX-512.
#pragma once

#include <cstdint>

#include "device/gemm.h"

namespace mpt {

// A[i][k] = a[i * row_stride + k * col_stride]: any layout, including transposed ones.
struct TileA {
  const float* data;
  int64_t row_stride;
  int64_t col_stride;
};

// Which part of a GEMM over a causal tile is needed: a score exists if the key is not after the
// query.
enum class Causal : uint8_t {
  kNo,         // all of it
  kOutput,     // columns of C up to the row's own; the rest are undefined
  kUpToRow,    // A[i][k] is 0 for k > i
  kFromRowOn,  // A[i][k] is 0 for k < i
};

struct TileGemm {
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

void tile_gemm(Accumulate accumulate, const TileGemm& gemm);

}  // namespace mpt
