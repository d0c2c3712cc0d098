// Matrix products on the CPU through an OpenMP CBLAS. BF16 and FP8 operands are widened to FP32 scratch,
// multiplied there, and a BF16 result is rounded once.
#pragma once

#include <string>

#include "device/gemm.h"
#include "device/scratch.h"

namespace mpt {

class CpuGemm final : public Gemm {
 public:
  explicit CpuGemm(int threads);
  void reserve(Allocator& allocator, std::span<const GemmCall> calls) override;
  void run(const GemmCall& call) override;

 private:
  Scratch a_, b_, d_;  // FP32 copies of operands
};

// Library, version and the kernel it chose for this machine: "BLIS 0.9.0 (zen3 kernels, 2 threads)".
std::string cblas_description();
// False if the library fell back to kernels that do not use this machine's vector instructions.
bool cblas_is_optimised();
// Whether its products have the same bits with any number of threads, as far as is known.
bool cblas_ignores_threads();

}  // namespace mpt
