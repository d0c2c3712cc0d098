#include "device/cuda/cuda_attention.h"

#include <compare>
#include <map>
#include <optional>
#include <string>

#include <spdlog/spdlog.h>

#include "core/check.h"

namespace mpt {

bool has_cudnn_attention() {
#ifdef MPT_WITH_CUDNN
  return true;
#else
  return false;
#endif
}

namespace {

#ifdef MPT_WITH_CUDNN

// Queries cuDNN once per kind of call: when it is reserved or, failing that, first made.
class CudnnOrGemms final : public Attention {
 public:
  CudnnOrGemms(CUstream_st* stream, CudaAttention kind, DeterministicAttention deterministic)
      : kind_(kind), cudnn_(stream, deterministic), gemms_(stream) {}

  void reserve(Allocator& allocator, const AttentionShape& shape, DType storage) override {
    chosen_for(shape, storage).reserve(allocator, shape, storage);
  }
  void forward(const AttentionForward& call) override {
    chosen_for(call.shape, call.qkv.dtype).forward(call);
  }
  void backward(const AttentionBackward& call) override {
    chosen_for(call.shape, call.qkv.dtype).backward(call);
  }
  std::string in_use(const AttentionShape& shape, DType storage) override {
    const std::optional<std::string>& objection = objection_to(shape, storage);
    return objection ? fmt::format("GEMMs (cuDNN: {})", *objection) : cudnn_.in_use(shape, storage);
  }

 private:
  // The batch size does not matter to cuDNN's support.
  struct Kind {
    int64_t seq_len, heads, key_value_heads, head_dim;
    AttentionScope scope;
    DType storage;
    auto operator<=>(const Kind&) const = default;
  };

  Attention& chosen_for(const AttentionShape& s, DType storage) {
    return objection_to(s, storage) ? static_cast<Attention&>(gemms_) : cudnn_;
  }
  const std::optional<std::string>& objection_to(const AttentionShape& s, DType storage) {
    const Kind kind{s.seq_len, s.heads, s.key_value_heads, s.head_dim, s.scope, storage};
    auto known = objections_.find(kind);
    if (known == objections_.end()) known = objections_.emplace(kind, ask(s, storage)).first;
    return known->second;
  }
  std::optional<std::string> ask(const AttentionShape& s, DType storage) {
    std::optional<std::string> objection = cudnn_.objection(s, storage);
    // With fp32 this is expected.
    if (!objection || (kind_ == CudaAttention::kAuto && storage == DType::kF32)) return objection;
    const std::string text = fmt::format(
        "cuDNN attention does not support {} heads of {} dimensions, {} of keys, over {} tokens in "
        "{}: {}",
        s.heads, s.head_dim, s.key_value_heads, s.seq_len, name_of(storage), *objection);
    if (kind_ == CudaAttention::kCudnn) throw error("{}", text);
    spdlog::info("{}; using GEMMs", text);
    return objection;
  }

  CudaAttention kind_;
  CudnnAttention cudnn_;
  GemmAttention gemms_;
  std::map<Kind, std::optional<std::string>> objections_;
};

std::unique_ptr<Attention> make_with_cudnn(CUstream_st* stream, CudaAttention kind,
                                           DeterministicAttention deterministic) {
  return std::make_unique<CudnnOrGemms>(stream, kind, deterministic);
}

#else

std::unique_ptr<Attention> make_with_cudnn(CUstream_st* stream, CudaAttention kind,
                                           DeterministicAttention /*deterministic*/) {
  if (kind == CudaAttention::kCudnn)
    throw error(
        "cuDNN attention is not part of this build (it needs cuDNN 9 and the headers of "
        "cudnn-frontend)");
  if (stream != nullptr)  // a plan logs nothing
    spdlog::info("attention by GEMMs: cuDNN attention is not part of this build");
  return std::make_unique<GemmAttention>(stream, "this build has no cuDNN attention");
}

#endif

}  // namespace

std::unique_ptr<Attention> make_cuda_attention(CUstream_st* stream, CudaAttention kind,
                                               DeterministicAttention deterministic) {
  if (kind == CudaAttention::kGemms)
    return std::make_unique<GemmAttention>(stream, "as configured");
  return make_with_cudnn(stream, kind, deterministic);
}

}  // namespace mpt
