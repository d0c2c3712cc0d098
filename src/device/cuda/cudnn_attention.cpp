#include "device/cuda/cuda_attention.h"

#ifdef MPT_WITH_CUDNN

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include <cudnn.h>

#include "device/cuda/attention_workspace.h"
#include "device/cuda/cuda_handles.h"
#include "device/cuda/document_bias.h"

namespace mpt {
namespace {

void check_cudnn(cudnnStatus_t status, std::string_view call,
                 std::source_location where = std::source_location::current()) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> detail{};
  cudnnGetLastErrorString(detail.data(), detail.size());
  throw CudaError(call, fmt::format("{} {}", cudnnGetErrorString(status), detail.data()), where);
}

using CudnnHandle = Owned<cudnnHandle_t, cudnnDestroy>;

CudnnHandle make_handle(CUstream_st* stream) {
  cudnnHandle_t handle = nullptr;
  check_cudnn(cudnnCreate(&handle), "cudnnCreate");
  CudnnHandle owned(handle);
  check_cudnn(cudnnSetStream(handle, stream), "cudnnSetStream");
  return owned;
}

// Address of a part of qkv, or of a tensor with the columns of its first part, from a sequence on.
void* part_of(const Tensor& t, const AttentionShape& s, int64_t sequence,
              QkvPart part = QkvPart::kQ) {
  return t.data + (sequence * s.seq_len * t.stride + first_column(s, part)) * size_of(t.dtype);
}
void* statistics_of(const Tensor& t, const AttentionShape& s, int64_t sequence) {
  return t.data + sequence * s.heads * t.stride * size_of(t.dtype);
}

using SdpaTensors = std::unordered_map<SdpaTensor, void*>;

// Tensors of both passes, for a group whose first sequence is `first`.
template <class Call>
SdpaTensors tensors_of(const Call& call, const AttentionShape& s, int64_t first, void* bias) {
  using enum SdpaTensor;
  return {{kQ, part_of(call.qkv, s, first)},
          {kK, part_of(call.qkv, s, first, QkvPart::kK)},
          {kV, part_of(call.qkv, s, first, QkvPart::kV)},
          {kO, part_of(call.out, s, first)},
          {kStats, statistics_of(call.log_sum_exp, s, first)},
          {kBias, bias}};
}

void check_statistics(const Tensor& t) {
  check(t.contiguous(),
        "cuDNN attention: log-sum-exp of {} columns with row stride {}; expected no padding",
        t.cols, t.stride);
}

AttentionShape with_batch(AttentionShape shape, int64_t sequences) {
  shape.batch = sequences;
  return shape;
}

std::set<int64_t> sizes_of(const AttentionGroups& groups) {
  return {groups.fewest_sequences(), groups.most_sequences()};
}

// --- cuDNN's requirements ------------------------------------------------------------------------

// Restrictions that hold on every GPU, so that a plan without one applies them too.
constexpr int64_t kHeadDimMultiple = 8;
constexpr int64_t kLargestHeadDim = 128;
// Up to this version, lengths that are not whole tiles need a mask that the frontend copies from
// host memory when the graph is run; a replay of a CUDA graph would no longer find it there.
constexpr size_t kLastWithMaskFromHost = 91500;

std::optional<std::string> general_objection(const AttentionShape& s, DType storage) {
  if (storage != DType::kBF16) return fmt::format("it supports bf16, not {}", name_of(storage));
  if (s.head_dim % kHeadDimMultiple != 0 || s.head_dim > kLargestHeadDim)
    return fmt::format("the head size must be a multiple of {} and at most {}", kHeadDimMultiple,
                       kLargestHeadDim);
  if (s.seq_len == 1) return "the backward pass needs more than one token";
  if (s.seq_len % kAttentionKeyTile != 0 && cudnnGetVersion() <= kLastWithMaskFromHost)
    return fmt::format("version {} needs a multiple of {} tokens", cudnnGetVersion(),
                       kAttentionKeyTile);
  return std::nullopt;
}

}  // namespace

struct CudnnAttention::Library {
  CudnnHandle handle;
  std::map<SdpaKey, SdpaGraph> graphs;
  std::map<SdpaKey, std::string> refused;

  explicit Library(CUstream_st* stream) : handle(make_handle(stream)) {}

  // Null if cuDNN refuses; queries cuDNN once per key.
  const SdpaGraph* find(const SdpaKey& key) {
    if (const auto known = graphs.find(key); known != graphs.end()) return &known->second;
    if (refused.contains(key)) return nullptr;
    SdpaGraph& graph = graphs.try_emplace(key, key).first->second;
    const std::optional<std::string> objection = graph.build(handle.get());
    if (!objection) return &graph;
    graphs.erase(key);
    refused.emplace(key, *objection);
    return nullptr;
  }
  const SdpaGraph& get(const SdpaKey& key) {
    const SdpaGraph* graph = find(key);
    if (graph == nullptr)
      throw CudaError("cuDNN attention", refused.at(key), std::source_location::current());
    return *graph;
  }
};

CudnnAttention::CudnnAttention(CUstream_st* stream, DeterministicAttention deterministic)
    : stream_(stream), deterministic_(deterministic) {}
CudnnAttention::~CudnnAttention() = default;

CudnnAttention::Library& CudnnAttention::library() {
  check(stream_ != nullptr, "cuDNN attention made for planning cannot run");
  if (library_ == nullptr) library_ = std::make_unique<Library>(stream_);
  return *library_;
}

std::vector<SdpaKey> CudnnAttention::keys_for(const AttentionShape& s,
                                              DeterministicAttention deterministic) {
  const std::set<int64_t> forward = sizes_of(forward_attention_groups(s, deterministic)),
                          backward = sizes_of(attention_groups(s, deterministic));
  std::vector<SdpaKey> keys;
  for (const int64_t sequences : forward) keys.push_back(forward_key(s, sequences));
  for (const int64_t sequences : backward)
    keys.push_back(backward_key(s, sequences, deterministic));
  return keys;
}

std::optional<std::string> CudnnAttention::objection(const AttentionShape& shape, DType storage) {
  if (auto found = general_objection(shape, storage)) return found;
  if (shape.empty()) return std::nullopt;
  // A later group's statistics start inside the tensor; cuDNN is told of a 16-byte alignment.
  if (attention_groups(shape, deterministic_).count > 1 && shape.heads * shape.seq_len % 4 != 0)
    return fmt::format(
        "several groups of sequences need heads times tokens to be a multiple of 4, not {} x {}",
        shape.heads, shape.seq_len);
  if (stream_ == nullptr) return std::nullopt;
  for (const SdpaKey& key : keys_for(shape, deterministic_))
    if (library().find(key) == nullptr) return library().refused.at(key);
  return std::nullopt;
}

std::string CudnnAttention::in_use(const AttentionShape& /*shape*/, DType /*storage*/) {
  const size_t version = cudnnGetVersion();
  return fmt::format("cuDNN {}.{}.{}{}", version / 10000, version / 100 % 100, version % 100,
                     deterministic_ == DeterministicAttention::kOn
                         ? ""
                         : ", not deterministic: no two runs have the same bits");
}

void CudnnAttention::reserve(Allocator& allocator, const AttentionShape& shape, DType storage) {
  if (shape.empty()) return;
  const auto found = objection(shape, storage);
  check(!found, "cuDNN attention does not support this shape: {}", found.value_or(""));
  // A smaller batch may form larger groups.
  const AttentionShape group = with_batch(shape, most_attention_sequences(shape, deterministic_));
  int64_t workspace = attention_workspace(group, deterministic_);
  if (stream_ != nullptr)
    for (const SdpaKey& key : keys_for(shape, deterministic_))
      workspace = std::max(workspace, asked_for(key, group));
  scratch_.reserve(allocator, document_bias_bytes(group) + workspace);
}

// Workspace requested by a plan; if it exceeds the estimate, scaled up for the whole group.
int64_t CudnnAttention::asked_for(const SdpaKey& key, const AttentionShape& group) {
  const int64_t asked = library().get(key).workspace_bytes();
  const int64_t expected = attention_workspace(with_batch(group, key.batch), deterministic_);
  if (key.pass == AttentionPass::kForward || asked <= expected) return asked;
  return (asked * group.batch + key.batch - 1) / key.batch;
}

CudnnAttention::GroupScratch CudnnAttention::scratch_of(const AttentionShape& group,
                                                        const Tensor& document_begin, int64_t first,
                                                        int64_t workspace) const {
  const int64_t bias = document_bias_bytes(group);
  check(bias + workspace <= scratch_.bytes(),
        "cuDNN attention needs {} bytes of scratch, reserved {}", bias + workspace,
        scratch_.bytes());
  auto* const scratch = reinterpret_cast<std::byte*>(scratch_.floats());
  if (bias == 0) return {nullptr, scratch};
  write_document_bias({.document_begin = document_begin.as<int32_t>() + first * group.seq_len,
                       .sequences = group.batch,
                       .tokens = group.seq_len,
                       .bias = scratch},
                      stream_);
  return {scratch, scratch + bias};
}

void CudnnAttention::forward(const AttentionForward& call) {
  check_shapes(call);
  check_statistics(call.log_sum_exp);
  if (call.shape.empty()) return;
  const AttentionGroups groups = forward_attention_groups(call.shape, deterministic_);
  for (int64_t group = 0; group < groups.count; ++group)
    forward_of_group(call, groups.first(group), groups.first(group + 1) - groups.first(group));
}

void CudnnAttention::backward(const AttentionBackward& call) {
  check_shapes(call);
  check_statistics(call.log_sum_exp);
  if (call.shape.empty()) return;
  const AttentionGroups groups = attention_groups(call.shape, deterministic_);
  for (int64_t group = 0; group < groups.count; ++group)
    backward_of_group(call, groups.first(group), groups.first(group + 1) - groups.first(group));
}

void CudnnAttention::forward_of_group(const AttentionForward& call, int64_t first, int64_t count) {
  const AttentionShape s = with_batch(call.shape, count);
  SdpaKey key = forward_key(s, count);
  key.qkv = call.qkv.stride;
  key.out = call.out.stride;
  const SdpaGraph& graph = library().get(key);
  const GroupScratch scratch = scratch_of(s, call.document_begin, first, graph.workspace_bytes());
  graph.execute(library().handle.get(), tensors_of(call, s, first, scratch.bias),
                scratch.workspace);
}

void CudnnAttention::backward_of_group(const AttentionBackward& call, int64_t first,
                                       int64_t count) {
  const AttentionShape s = with_batch(call.shape, count);
  SdpaKey key = backward_key(s, count, deterministic_);
  key.qkv = call.qkv.stride;
  key.out = call.out.stride;
  key.d_out = call.d_out.stride;
  key.d_qkv = call.d_qkv.stride;
  const SdpaGraph& graph = library().get(key);
  const GroupScratch scratch = scratch_of(s, call.document_begin, first, graph.workspace_bytes());
  SdpaTensors tensors = tensors_of(call, s, first, scratch.bias);
  using enum SdpaTensor;
  tensors.insert({{kDO, part_of(call.d_out, s, first)},
                  {kDQ, part_of(call.d_qkv, s, first)},
                  {kDK, part_of(call.d_qkv, s, first, QkvPart::kK)},
                  {kDV, part_of(call.d_qkv, s, first, QkvPart::kV)}});
  graph.execute(library().handle.get(), tensors, scratch.workspace);
}

}  // namespace mpt

#endif  // MPT_WITH_CUDNN
