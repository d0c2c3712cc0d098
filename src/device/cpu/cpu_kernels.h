// GEMM and attention on the CPU.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "device/attention.h"
#include "device/bf16_dot.h"
#include "device/gemm.h"
#include "device/memory.h"

namespace mpt {

// Packs blocks of the operands as FP32, whatever their storage type, and multiplies them in
// registers (gemm_kernel.h). On request, packs BF16 and FP8 as pairs of BF16 numbers and uses the
// processor's instructions for them (bf16_kernel.h; its sums differ from the following). A BF16
// result is rounded once.
//
// D = alpha S_1 + alpha S_2 + ...: the k terms are cut into equal parts of at most kDepth. S_i is
// the sum of part i in term order; the parts are added in order, each by a multiply-add with alpha,
// the product of the operands' scale_inv. The bits depend on nothing else: not on the number of
// threads, nor on vector width on machines with fused multiply-adds.
class CpuGemm final : public Gemm {
 public:
  // Requires that why_no_bf16_dot() is empty.
  CpuGemm(int threads, Bf16Dot dot);
  void reserve(Allocator& allocator, std::span<const GemmCall> calls) override;
  void run(const GemmCall& call) override;
  // The choice between kinds of products, unless it is kFma.
  [[nodiscard]] std::vector<GemmChoice> choices() const override;
  // kAuto adopts the stored choice (kFma if there is none) if the processor supports it.
  void restore(std::span<const GemmChoice> choices) override;
  // cpu_gemm_description(), and how dot products of BF16 numbers are summed.
  [[nodiscard]] std::string description() const;
  // How dot products of BF16 numbers are summed: never kAuto; restore() may still change it.
  [[nodiscard]] Bf16Dot dot() const { return dot_; }
  [[nodiscard]] std::span<const Bf16Dot> possible_dots() const { return possible_; }

 private:
  [[nodiscard]] int64_t scratch_bytes(const GemmCall& call) const;

  int threads_;
  Bf16Dot wanted_, dot_;  // as requested; with kAuto resolved
  std::vector<Bf16Dot> possible_;
  Scratch scratch_;  // per thread: packed blocks, and partial sums if the result is not FP32
};

// Instruction set that GEMMs were compiled for: "own kernels for AVX-512, blocks of 14 x 32".
std::string cpu_gemm_description();

// Each thread processes one (sequence, head) at a time, in 64 x 64 tiles with an online softmax
// (FlashAttention's recurrence). Memory per thread is linear in the sequence length. Multiplies in
// FP32, or BF16 tensors the way `gemm` does: then probabilities and gradients of scores are rounded
// to BF16 first (docs/numerics.md "Attention").
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
  Scratch scratch_;  // for all threads
};

}  // namespace mpt
