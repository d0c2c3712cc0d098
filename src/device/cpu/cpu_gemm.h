// Matrix products on the CPU: blocks of the operands are packed as FP32, whatever they are stored as, and
// multiplied in registers (gemm_kernel.h). A BF16 result is rounded once.
//
// D = alpha S_1 + alpha S_2 + ...: the terms are cut into equal parts of at most kDepth, S_i is the sum of
// one part in the order of its terms, and the parts are added in their order, each by a multiply-add with
// alpha, the product of the operands' scale_inv. The bits depend on nothing else: not on the number of
// threads, nor on the width of vectors on machines with fused multiply-adds.
#pragma once

#include <string>

#include "device/gemm.h"
#include "device/scratch.h"

namespace mpt {

class CpuGemm final : public Gemm {
 public:
  explicit CpuGemm(int threads) : threads_(threads) {}
  void reserve(Allocator& allocator, std::span<const GemmCall> calls) override;
  void run(const GemmCall& call) override;

 private:
  int threads_;
  Scratch scratch_;  // of each thread: packed blocks, and sums of a result that is not FP32
};

// The instructions that products were compiled for: "AVX-512, blocks of 14 x 32".
std::string cpu_gemm_description();

}  // namespace mpt
