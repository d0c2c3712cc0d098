// GEMM and attention on the CPU.
#pragma once

#include <string>

#include "device/attention.h"
#include "device/bf16_products.h"
#include "device/gemm.h"
#include "device/memory.h"

namespace mpt {

// Packs blocks of the operands as FP32, whatever their storage type, and multiplies them in
// registers (gemm_kernel.h); or, if asked to, those of BF16 and FP8 as pairs of BF16 numbers, with
// the processor's instructions for them (bf16_kernel.h, which has other sums than the following). A
// BF16 result is rounded once.
//
// D = alpha S_1 + alpha S_2 + ...: the k terms are cut into equal parts of at most kDepth. S_i is
// the sum of part i in the order of its terms; the parts are added in order, each by a multiply-add
// with alpha, the product of the operands' scale_inv. The bits depend on nothing else: not on the
// number of threads, nor on vector width on machines with fused multiply-adds.
class CpuGemm final : public Gemm {
 public:
  // Requires that why_no_bf16_products() is empty.
  CpuGemm(int threads, Bf16Products products);
  void reserve(Allocator& allocator, std::span<const GemmCall> calls) override;
  void run(const GemmCall& call) override;
  // The choice between kinds of products, unless it is kFma.
  [[nodiscard]] std::vector<GemmChoice> choices() const override;
  // kAuto takes the stored one, kFma if none is, where the processor can.
  void restore(std::span<const GemmChoice> choices) override;
  // cpu_gemm_description(), and what sums products of BF16 numbers.
  [[nodiscard]] std::string description() const;

 private:
  [[nodiscard]] int64_t scratch_bytes(const GemmCall& call) const;

  int threads_;
  Bf16Products wanted_, products_;  // as asked for; without kAuto
  Scratch scratch_;  // per thread: packed blocks, and partial sums if the result is not FP32
};

// The instruction set that GEMMs were compiled for: "own kernels for AVX-512, blocks of 14 x 32".
std::string cpu_gemm_description();

// Each thread processes one (sequence, head) at a time, in 64 x 64 tiles with an online softmax
// (FlashAttention's recurrence). Memory per thread is linear in the sequence length.
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
