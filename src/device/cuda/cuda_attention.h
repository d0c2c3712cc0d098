// Attention on an NVIDIA GPU: cuDNN's fused kernels if they support the shape and storage type,
// else batched GEMMs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/attention.h"
#include "device/backends.h"
#include "device/cuda/sdpa_graph.h"
#include "device/cuda/strided_gemm.h"
#include "device/memory.h"

struct CUstream_st;

namespace mpt {

// Whether this build includes cuDNN's attention.
bool has_cudnn_attention();

// With a null stream it only plans, and reserve() needs no GPU. Throws Error for kCudnn in a build
// without it.
std::unique_ptr<Attention> make_cuda_attention(
    CUstream_st* stream, CudaAttention kind = CudaAttention::kAuto,
    DeterministicAttention deterministic = DeterministicAttention::kOn);

// Attention by cuDNN's fused kernels, bf16 only. Over rows, only the deterministic backward pass
// stores a [T,T] matrix per head. That pass and, within documents, both passes process sequences in
// groups (attention_workspace.h).
//
// cuDNN's statistics are the natural logarithm of the sum of exponentials of the scaled scores, [B,
// H, T]: log_sum_exp in device/attention.h.
class CudnnAttention final : public Attention {
 public:
  // With a null stream it only plans.
  explicit CudnnAttention(CUstream_st* stream,
                          DeterministicAttention deterministic = DeterministicAttention::kOn);
  ~CudnnAttention() override;
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // Why cuDNN cannot handle calls of this shape; nullopt if it can. With a stream, queries cuDNN
  // itself, which prepares its plans for contiguous tensors of the shape.
  [[nodiscard]] std::optional<std::string> objection(const AttentionShape& shape, DType storage);

  // With a stream, builds plans for contiguous tensors of the shape now; other plans are built by
  // the call that needs them. Takes attention_scratch(), or what the plans need if that is more.
  void reserve(Allocator& allocator, const AttentionShape& shape, DType storage) override;
  void forward(const AttentionForward& call) override;
  // log_sum_exp must have rows without padding.
  void backward(const AttentionBackward& call) override;
  std::string in_use(const AttentionShape& shape, DType storage) override;

  // Plans of a nonempty shape, for all its group sizes and both directions.
  static std::vector<SdpaKey> keys_for(const AttentionShape& shape,
                                       DeterministicAttention deterministic);

 private:
  struct Library;  // handle and plans
  Library& library();
  int64_t asked_for(const SdpaKey& key, const AttentionShape& group);
  struct GroupScratch {
    void* bias;  // null if attention is over rows
    void* workspace;
  };
  // For a group whose first sequence is `first`; enqueues writing its bias.
  [[nodiscard]] GroupScratch scratch_of(const AttentionShape& group, const Tensor& document_begin,
                                        int64_t first, int64_t workspace) const;
  void forward_of_group(const AttentionForward& call, int64_t first, int64_t count);
  void backward_of_group(const AttentionBackward& call, int64_t first, int64_t count);

  CUstream_st* stream_;
  DeterministicAttention deterministic_;
  std::unique_ptr<Library> library_;
  Scratch scratch_;
};

// Size of the scratch in bytes.
struct GemmAttentionScratch {
  int64_t matrices =
      int64_t{256} << 20;  // [T, T] of a chunk; those of one key/value head always fit
  int64_t workspace = StridedGemm::kWorkspaceBytes;
};

// Attention by batched GEMMs with our own softmax kernels, for fp32 and for shapes that fused
// kernels do not support.
//
// Processes (sequence, head) pairs in chunks whose [T, T] matrices fit a bounded scratch. Within a
// chunk, queries and keys are processed in bands of kBand tokens, so that little above the diagonal
// is computed. Scores, exponentials and sums are FP32; with bf16 storage, P and dS are rounded to
// bf16 before they are multiplied. Deterministic: the same call gives the same bits.
class GemmAttention final : public Attention {
 public:
  static constexpr int64_t kBand = 256;  // tokens

  explicit GemmAttention(CUstream_st* stream, const GemmAttentionScratch& most = {});
  // `reason`: why cuDNN is not used, for in_use().
  GemmAttention(CUstream_st* stream, const char* reason) : GemmAttention(stream) {
    reason_ = reason;
  }

  // Reserves scratch for every shape whose pairs are not larger; a smaller batch or fewer heads
  // need no new call.
  void reserve(Allocator& allocator, const AttentionShape& shape, DType storage) override;
  void forward(const AttentionForward& call) override;
  void backward(const AttentionBackward& call) override;
  std::string in_use(const AttentionShape& /*shape*/, DType /*storage*/) override {
    return reason_.empty() ? "GEMMs" : "GEMMs (" + reason_ + ")";
  }

 private:
  [[nodiscard]] int64_t pairs_at_once(const AttentionShape& shape) const;

  CUstream_st* stream_;
  GemmAttentionScratch most_;
  StridedGemm gemm_;
  Scratch scratch_;  // workspace of the GEMMs, then the matrices
  std::string reason_;
};

}  // namespace mpt
