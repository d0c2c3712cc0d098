// Causal attention on an NVIDIA GPU by batched matrix products, with the softmax in between as kernels of
// ours: for fp32 and for what a fused implementation does not take.
//
// (sequence, head) pairs are worked through in chunks whose [T, T] matrices fit a bounded scratch. Within a
// chunk queries and keys go in bands of kBand tokens, so that little above the diagonal is ever computed.
// Scores, exponentials and sums are FP32; with bf16 storage P and dS are rounded to bf16 before they are
// multiplied. Deterministic: the same call gives the same bits.
#pragma once

#include "device/attention.h"
#include "device/cuda/strided_products.h"
#include "device/scratch.h"

namespace mpt {

// Bytes of scratch.
struct ProductAttentionScratch {
  int64_t matrices = int64_t{256} << 20;  // [T, T] of a chunk; one pair's are always allowed
  int64_t workspace = StridedProducts::kWorkspaceBytes;
};

class ProductAttention final : public Attention {
 public:
  static constexpr int64_t kBand = 256;  // tokens

  explicit ProductAttention(CUstream_st* stream, const ProductAttentionScratch& most = {});

  // Scratch for every shape whose pairs are not larger; a smaller batch or fewer heads need no new call.
  void reserve(Allocator& allocator, const AttentionShape& shape, DType storage) override;
  void forward(const AttentionForward& call) override;
  void backward(const AttentionBackward& call) override;

 private:
  [[nodiscard]] int64_t pairs_at_once(const AttentionShape& shape) const;

  CUstream_st* stream_;
  ProductAttentionScratch most_;
  StridedProducts products_;
  Scratch scratch_;  // the products' workspace, then the matrices
};

}  // namespace mpt
