// GEMM and attention on the CPU.
#pragma once

#include <string>

#include "device/attention.h"
#include "device/gemm.h"
#include "device/memory.h"

namespace mpt {

// Blocks of the operands are packed as FP32, whatever they are stored as, and multiplied in registers
// (gemm_kernel.h). A BF16 result is rounded once.
//
// D = alpha S_1 + alpha S_2 + ...: the terms are cut into equal parts of at most kDepth, S_i is the sum of
// one part in the order of its terms, and the parts are added in their order, each by a multiply-add with
// alpha, the product of the operands' scale_inv. The bits depend on nothing else: not on the number of
// threads, nor on the width of vectors on machines with fused multiply-adds.
class CpuGemm final : public Gemm {
 public:
  explicit CpuGemm(int threads) : threads_(threads) {}
  void reserve(Allocator& allocator, std::span<const GemmCall> calls) override;
  void run(const GemmCall& call) override;

 private:
  int threads_;
  Scratch scratch_;  // of each thread: packed blocks, and sums of a result that is not FP32
};

// The instructions that GEMMs were compiled for: "AVX-512, blocks of 14 x 32".
std::string cpu_gemm_description();

// One (sequence, head) at a time per thread, in 64 x 64 tiles with an online softmax (FlashAttention's
// recurrence). Memory per thread grows linearly with the sequence length.
class CpuAttention final : public Attention {
 public:
  explicit CpuAttention(int threads) : threads_(threads) {}
  void reserve(Allocator& allocator, const AttentionShape& shape, DType storage) override;
  void forward(const AttentionForward& call) override;
  void backward(const AttentionBackward& call) override;

 private:
  void check_reserved(const AttentionShape& shape) const;
  [[nodiscard]] float* scratch_of_thread(const AttentionShape& shape) const;

  int threads_;
  Scratch scratch_;  // of all threads
};

}  // namespace mpt
