// The FP32 product of the CBLAS that the build found, row-major: D = alpha op(A) op(B) + beta D.
#pragma once

#include "device/gemm.h"

namespace mpt {

struct Sgemm {
  Transpose transpose_a, transpose_b;
  int64_t m, n, k;
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  float alpha;
  float beta;
  float* d;
  int64_t ldd;
};

void sgemm(const Sgemm& call);
// Bytes that the library takes for its own copies of parts of A[m,k] and B; 0 where that is not known.
int64_t cblas_bytes(int64_t m, int64_t k);
void set_cblas_threads(int threads);

}  // namespace mpt
