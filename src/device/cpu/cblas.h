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
void set_cblas_threads(int threads);

}  // namespace mpt
