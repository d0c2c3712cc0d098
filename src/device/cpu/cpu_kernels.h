// GEMM and attention on the CPU.
#pragma once

#include <span>
#include <string>
#include <vector>

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
  // What sums products of BF16 numbers: never kAuto, and what restore() may yet make of it.
  [[nodiscard]] Bf16Products products() const { return products_; }
  [[nodiscard]] std::span<const Bf16Products> possible_products() const { return possible_; }

 private:
  [[nodiscard]] int64_t scratch_bytes(const GemmCall& call) const;

  int threads_;
  Bf16Products wanted_, products_;  // as asked for; without kAuto
  std::vector<Bf16Products> possible_;
  Scratch scratch_;  // per thread: packed blocks, and partial sums if the result is not FP32
};

// The instruction set that GEMMs were compiled for: "own kernels for AVX-512, blocks of 14 x 32".
std::string cpu_gemm_description();

// Each thread processes one (sequence, head) at a time, in 64 x 64 tiles with an online softmax
// (FlashAttention's recurrence). Memory per thread is linear in the sequence length. Multiplies in
// FP32, or BF16 tensors as `gemm` multiplies them: then probabilities and gradients of scores are
// rounded to BF16 first (docs/numerics.md "Attention").
class CpuAttention final : public Attention {
 public:
  CpuAttention(int threads, const CpuGemm& gemm) : threads_(threads), gemm_(gemm) {}
  void reserve(Allocator& allocator, const AttentionShape& shape, DType storage) override;
  void forward(const AttentionForward& call) override;
  void backward(const AttentionBackward& call) override;

 private:
  [[nodiscard]] int64_t scratch_bytes(const AttentionShape& shape, DType storage) const;
  template <class Tiles, class F>
  void run(const AttentionShape& shape, int64_t heads, const F& of_head);

  int threads_;
  const CpuGemm& gemm_;
  Scratch scratch_;  // of all threads
};

}  // namespace mpt
