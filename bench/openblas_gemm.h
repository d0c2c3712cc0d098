// FP32 GEMMs by OpenBLAS, for comparison with ours.
#pragma once

#include <cblas.h>

#include "device/gemm.h"

namespace mpt {

class OpenBlasGemm final : public Gemm {
 public:
  explicit OpenBlasGemm(int threads) { openblas_set_num_threads(threads); }
  void reserve(Allocator& /*allocator*/, std::span<const GemmCall> /*calls*/) override {}
  void run(const GemmCall& call) override {
    const auto flag = [](Transpose t) { return t == Transpose::kYes ? CblasTrans : CblasNoTrans; };
    cblas_sgemm(CblasRowMajor, flag(call.transpose_a), flag(call.transpose_b), blasint(call.m()),
                blasint(call.n()), blasint(call.k()), 1.0f, call.a.as<float>(),
                blasint(call.a.stride), call.b.as<float>(), blasint(call.b.stride),
                call.accumulate == Accumulate::kYes ? 1.0f : 0.0f, call.d.as<float>(),
                blasint(call.d.stride));
  }
};

}  // namespace mpt
