// Attention on an NVIDIA GPU: cuDNN's fused kernels where they take the shape and the storage type, batched
// GEMMs elsewhere.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "device/attention.h"
#include "device/backends.h"
#include "device/cuda/strided_gemm.h"
#include "device/memory.h"

struct CUstream_st;

namespace mpt {

// Whether this build has cuDNN's attention at all.
bool has_cudnn_attention();

// Without a stream it only plans: reserve() needs no GPU then. Throws Error for kCudnn in a build without it.
std::unique_ptr<Attention> make_cuda_attention(CUstream_st* stream,
                                               CudaAttention kind = CudaAttention::kAuto);

// By cuDNN's fused kernels, bf16 only: no [T,T] matrix of the forward pass exists, and the backward pass is
// the deterministic one.
//
// On Hopper the deterministic backward pass keeps dP in bf16, [B, H, T, T] with T rounded up to tiles, so it
// goes through the sequences in groups whose workspace stays within kWorkspaceBytes. cuDNN's statistics are
// the natural logarithm of the sum of exponentials of the scaled scores, [B, H, T]: log_sum_exp as
// device/attention.h has it.
class CudnnAttention final : public Attention {
 public:
  // For a group of sequences. A single sequence may take more.
  static constexpr int64_t kWorkspaceBytes = int64_t{256} << 20;

  // Without a stream it only plans.
  explicit CudnnAttention(CUstream_st* stream);
  ~CudnnAttention() override;
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // Why calls of this shape cannot go to cuDNN; nothing if they can. With a stream cuDNN itself is asked,
  // which prepares its plans for contiguous tensors of the shape.
  [[nodiscard]] std::optional<std::string> objection(const AttentionShape& shape, DType storage);

  // With a stream: plans for contiguous tensors of the shape are made now, others by the call that needs
  // them. Memory: workspace_estimate(), or what the plans ask for where that is more.
  void reserve(Allocator& allocator, const AttentionShape& shape, DType storage) override;
  void forward(const AttentionForward& call) override;
  // log_sum_exp must have rows without padding.
  void backward(const AttentionBackward& call) override;

  // How many sequences a group may have: at least one.
  static int64_t most_sequences(const AttentionShape& shape);
  // How many the groups of a shape that is not empty have, as even as they come.
  static int64_t sequences_at_once(const AttentionShape& shape);
  // Bytes that a backward pass over all sequences of the shape takes: what cuDNN 9.19 asks for on Hopper,
  // which is more than it does on Ampere and Blackwell. rowsum(dO O) [B,H,T] in fp32 and dP [B,H,T,T] in
  // bf16, with T in whole tiles of 64 queries and 128 keys.
  static int64_t workspace_estimate(const AttentionShape& shape);

 private:
  struct Library;  // handle and plans
  Library& library();
  [[nodiscard]] void* workspace(int64_t bytes) const;

  CUstream_st* stream_;
  std::unique_ptr<Library> library_;
  Scratch scratch_;
};

// Bytes of scratch.
struct GemmAttentionScratch {
  int64_t matrices = int64_t{256} << 20;  // [T, T] of a chunk; one pair's are always allowed
  int64_t workspace = StridedGemm::kWorkspaceBytes;
};

// By batched GEMMs, with the softmax in between as kernels of ours: for fp32 and for what a fused
// implementation does not take.
//
// (sequence, head) pairs are worked through in chunks whose [T, T] matrices fit a bounded scratch. Within a
// chunk queries and keys go in bands of kBand tokens, so that little above the diagonal is ever computed.
// Scores, exponentials and sums are FP32; with bf16 storage P and dS are rounded to bf16 before they are
// multiplied. Deterministic: the same call gives the same bits.
class GemmAttention final : public Attention {
 public:
  static constexpr int64_t kBand = 256;  // tokens

  explicit GemmAttention(CUstream_st* stream, const GemmAttentionScratch& most = {});

  // Scratch for every shape whose pairs are not larger; a smaller batch or fewer heads need no new call.
  void reserve(Allocator& allocator, const AttentionShape& shape, DType storage) override;
  void forward(const AttentionForward& call) override;
  void backward(const AttentionBackward& call) override;

 private:
  [[nodiscard]] int64_t pairs_at_once(const AttentionShape& shape) const;

  CUstream_st* stream_;
  GemmAttentionScratch most_;
  StridedGemm gemm_;
  Scratch scratch_;  // the GEMMs' workspace, then the matrices
};

}  // namespace mpt
