#include "device/cuda/cuda_attention.h"

#ifdef MPT_WITH_CUDNN

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <cstddef>
#include <map>
#include <unordered_map>
#include <vector>

#include <cudnn.h>
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // graphs are not serialised
#include <cudnn_frontend.h>

#include "device/cuda/cuda_handles.h"

namespace mpt {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using TensorHandle = std::shared_ptr<Tensor_attributes>;

// --- failures ------------------------------------------------------------------------------------

void check_cudnn(cudnnStatus_t status, std::string_view call,
                 std::source_location where = std::source_location::current()) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> detail{};
  cudnnGetLastErrorString(detail.data(), detail.size());
  throw CudaError(call, fmt::format("{} {}", cudnnGetErrorString(status), detail.data()), where);
}

void check_graph(const fe::error_t& answer, std::string_view call,
                 std::source_location where = std::source_location::current()) {
  if (answer.is_good()) return;
  throw CudaError(
      call, fmt::format("cudnn-frontend error {}: {}", int(answer.code), answer.err_msg), where);
}

// --- graphs --------------------------------------------------------------------------------------

enum class Pass : uint8_t { kForward, kBackward };

// Everything that a plan depends on. Strides are between rows, in elements.
struct Key {
  Pass pass;
  int64_t batch, seq_len, heads, head_dim;
  int64_t qkv, out, d_out, d_qkv;
  auto operator<=>(const Key&) const = default;
};

Key contiguous_key(Pass pass, const AttentionShape& s, int64_t batch) {
  const int64_t hidden = s.heads * s.head_dim;
  const int64_t backward = pass == Pass::kBackward ? 1 : 0;
  return {pass,
          batch,
          s.seq_len,
          s.heads,
          s.head_dim,
          3 * hidden,
          hidden,
          backward * hidden,
          backward * 3 * hidden};
}

enum Id : int64_t { kQ = 1, kK, kV, kO, kStats, kDO, kDQ, kDK, kDV };

// [B, H, T, D] with the heads side by side in rows of `stride` elements.
void describe_heads(Tensor_attributes& tensor, const Key& key, Id id, int64_t stride) {
  tensor.set_uid(id)
      .set_dim({key.batch, key.heads, key.seq_len, key.head_dim})
      .set_stride({key.seq_len * stride, key.head_dim, stride, 1})
      .set_data_type(fe::DataType_t::BFLOAT16);
}

void describe_statistics(Tensor_attributes& tensor, const Key& key) {
  tensor.set_uid(kStats)
      .set_dim({key.batch, key.heads, key.seq_len, 1})
      .set_stride({key.heads * key.seq_len, key.seq_len, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

float score_scale(const Key& key) { return 1.0f / std::sqrt(float(key.head_dim)); }

class SdpaGraph {
 public:
  explicit SdpaGraph(const Key& key) : key_(key) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (key.pass == Pass::kForward)
      add_forward();
    else
      add_backward();
  }

  fe::error_t build(cudnnHandle_t handle) {
    const fe::error_t answer = graph_.build(handle, {fe::HeurMode_t::A});
    return answer.is_good() ? graph_.get_workspace_size(workspace_bytes_) : answer;
  }
  [[nodiscard]] int64_t workspace_bytes() const { return workspace_bytes_; }

  void execute(cudnnHandle_t handle, std::unordered_map<int64_t, void*>& pointers,
               void* workspace) const {
    check_graph(graph_.execute(handle, pointers, workspace), key_.pass == Pass::kForward
                                                                 ? "cuDNN attention, forward"
                                                                 : "cuDNN attention, backward");
  }

 private:
  TensorHandle input(Id id, int64_t stride) {
    Tensor_attributes tensor;
    describe_heads(tensor, key_, id, stride);
    return graph_.tensor(tensor);
  }
  void output(const TensorHandle& tensor, Id id, int64_t stride) const {
    describe_heads(*tensor, key_, id, stride);
    tensor->set_output(true);
  }

  void add_forward() {
    auto options = fe::graph::SDPA_attributes()
                       .set_name("attention")
                       .set_generate_stats(true)
                       .set_attn_scale(score_scale(key_))
                       .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                       .set_diagonal_band_right_bound(0);
    auto [out, statistics] = graph_.sdpa(input(kQ, key_.qkv), input(kK, key_.qkv),
                                         input(kV, key_.qkv), std::move(options));
    output(out, kO, key_.out);
    describe_statistics(*statistics, key_);
    statistics->set_output(true);
  }

  void add_backward() {
    auto options = fe::graph::SDPA_backward_attributes()
                       .set_name("attention_backward")
                       .set_attn_scale(score_scale(key_))
                       .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                       .set_diagonal_band_right_bound(0)
                       .set_deterministic_algorithm(true);
    Tensor_attributes statistics;
    describe_statistics(statistics, key_);
    auto [d_q, d_k, d_v] = graph_.sdpa_backward(
        input(kQ, key_.qkv), input(kK, key_.qkv), input(kV, key_.qkv), input(kO, key_.out),
        input(kDO, key_.d_out), graph_.tensor(statistics), std::move(options));
    output(d_q, kDQ, key_.d_qkv);
    output(d_k, kDK, key_.d_qkv);
    output(d_v, kDV, key_.d_qkv);
  }

  Key key_;
  fe::graph::Graph graph_;
  int64_t workspace_bytes_ = 0;
};

using CudnnHandle = Owned<cudnnHandle_t, cudnnDestroy>;

CudnnHandle make_handle(CUstream_st* stream) {
  cudnnHandle_t handle = nullptr;
  check_cudnn(cudnnCreate(&handle), "cudnnCreate");
  CudnnHandle owned(handle);
  check_cudnn(cudnnSetStream(handle, stream), "cudnnSetStream");
  return owned;
}

// Address of a part of a packed tensor, starting at a sequence.
void* part_of(const Tensor& t, const AttentionShape& s, int64_t sequence, int64_t part) {
  return t.data +
         (sequence * s.seq_len * t.stride + part * s.heads * s.head_dim) * size_of(t.dtype);
}
void* statistics_of(const Tensor& t, const AttentionShape& s, int64_t sequence) {
  return t.data + sequence * s.heads * t.stride * size_of(t.dtype);
}

void check_statistics(const Tensor& t) {
  check(t.contiguous(),
        "cuDNN attention: log-sum-exp of {} columns with row stride {}; expected no padding",
        t.cols, t.stride);
}

bool is_empty(const AttentionShape& s) { return s.batch == 0 || s.heads == 0 || s.seq_len == 0; }

// --- what cuDNN takes ----------------------------------------------------------------------------

// Restrictions that hold on every GPU, so that a plan without one knows them too.
constexpr int64_t kHeadDimMultiple = 8;
constexpr int64_t kLargestHeadDim = 128;
// Up to this version, lengths that are not whole tiles need a mask that the frontend copies from
// host memory when the graph is run; a replay of a CUDA graph would no longer find it there.
constexpr size_t kLastWithMaskFromHost = 91500;
constexpr int64_t kKeyTile = 128;
constexpr int64_t kQueryTile = 64;

std::optional<std::string> general_objection(const AttentionShape& s, DType storage) {
  if (storage != DType::kBF16) return fmt::format("it supports bf16, not {}", name_of(storage));
  if (s.head_dim % kHeadDimMultiple != 0 || s.head_dim > kLargestHeadDim)
    return fmt::format("the head size must be a multiple of {} and at most {}", kHeadDimMultiple,
                       kLargestHeadDim);
  if (s.seq_len == 1) return "the backward pass needs more than one token";
  if (s.seq_len % kKeyTile != 0 && cudnnGetVersion() <= kLastWithMaskFromHost)
    return fmt::format("version {} needs a multiple of {} tokens", cudnnGetVersion(), kKeyTile);
  return std::nullopt;
}

}  // namespace

struct CudnnAttention::Library {
  CudnnHandle handle;
  std::map<Key, SdpaGraph> graphs;
  std::map<Key, std::string> refused;

  explicit Library(CUstream_st* stream) : handle(make_handle(stream)) {}

  // Null if cuDNN refuses; asks cuDNN once per key.
  const SdpaGraph* find(const Key& key) {
    if (const auto known = graphs.find(key); known != graphs.end()) return &known->second;
    if (refused.contains(key)) return nullptr;
    SdpaGraph& graph = graphs.try_emplace(key, key).first->second;
    const fe::error_t answer = graph.build(handle.get());
    if (answer.is_good()) return &graph;
    graphs.erase(key);
    refused.emplace(key, answer.err_msg.substr(0, answer.err_msg.find('\n')));
    return nullptr;
  }
  const SdpaGraph& get(const Key& key) {
    const SdpaGraph* graph = find(key);
    if (graph == nullptr)
      throw CudaError("cuDNN attention", refused.at(key), std::source_location::current());
    return *graph;
  }
};

CudnnAttention::CudnnAttention(CUstream_st* stream) : stream_(stream) {}
CudnnAttention::~CudnnAttention() = default;

CudnnAttention::Library& CudnnAttention::library() {
  check(stream_ != nullptr, "cuDNN attention made for planning cannot run");
  if (library_ == nullptr) library_ = std::make_unique<Library>(stream_);
  return *library_;
}

int64_t CudnnAttention::workspace_estimate(const AttentionShape& s) {
  constexpr int64_t kFixed = 256;
  const int64_t queries = align_up(s.seq_len, kQueryTile), keys = align_up(s.seq_len, kKeyTile);
  return s.batch * s.heads * (queries * keys * 2 + s.seq_len * 4) + kFixed;
}

int64_t CudnnAttention::most_sequences(const AttentionShape& shape) {
  AttentionShape one = shape;
  one.batch = 1;
  return std::clamp<int64_t>(kWorkspaceBytes / workspace_estimate(one), 1,
                             std::max<int64_t>(shape.batch, 1));
}

int64_t CudnnAttention::sequences_at_once(const AttentionShape& shape) {
  const int64_t most = most_sequences(shape), groups = (shape.batch + most - 1) / most;
  return (shape.batch + groups - 1) / groups;
}

namespace {

// The plans of a shape: forward for all sequences, backward for a group and for the remainder.
std::vector<Key> keys_for(const AttentionShape& s) {
  const int64_t group = CudnnAttention::sequences_at_once(s);
  std::vector<Key> keys{contiguous_key(Pass::kForward, s, s.batch),
                        contiguous_key(Pass::kBackward, s, group)};
  if (s.batch % group != 0) keys.push_back(contiguous_key(Pass::kBackward, s, s.batch % group));
  return keys;
}

}  // namespace

std::optional<std::string> CudnnAttention::objection(const AttentionShape& shape, DType storage) {
  if (auto found = general_objection(shape, storage)) return found;
  if (stream_ == nullptr || is_empty(shape)) return std::nullopt;
  for (const Key& key : keys_for(shape))
    if (library().find(key) == nullptr) return library().refused.at(key);
  return std::nullopt;
}

void CudnnAttention::reserve(Allocator& allocator, const AttentionShape& shape, DType storage) {
  if (is_empty(shape)) return;
  const auto found = objection(shape, storage);
  check(!found, "cuDNN attention does not support this shape: {}", found.value_or(""));
  AttentionShape group = shape;
  group.batch = most_sequences(shape);  // a smaller batch may fall into larger groups
  int64_t bytes = workspace_estimate(group);
  if (stream_ != nullptr)
    for (const Key& key : keys_for(shape))
      bytes = std::max(bytes, library().get(key).workspace_bytes());
  scratch_.reserve(allocator, bytes);
}

void* CudnnAttention::workspace(int64_t bytes) const {
  check(bytes <= scratch_.bytes(), "cuDNN attention needs {} bytes of scratch, reserved {}", bytes,
        scratch_.bytes());
  return scratch_.floats();
}

void CudnnAttention::forward(const AttentionForward& call) {
  check_shapes(call);
  check_statistics(call.log_sum_exp);
  const AttentionShape& s = call.shape;
  if (is_empty(s)) return;
  Key key = contiguous_key(Pass::kForward, s, s.batch);
  key.qkv = call.qkv.stride;
  key.out = call.out.stride;
  const SdpaGraph& graph = library().get(key);
  std::unordered_map<int64_t, void*> pointers{{kQ, part_of(call.qkv, s, 0, 0)},
                                              {kK, part_of(call.qkv, s, 0, 1)},
                                              {kV, part_of(call.qkv, s, 0, 2)},
                                              {kO, part_of(call.out, s, 0, 0)},
                                              {kStats, statistics_of(call.log_sum_exp, s, 0)}};
  graph.execute(library().handle.get(), pointers, workspace(graph.workspace_bytes()));
}

void CudnnAttention::backward(const AttentionBackward& call) {
  check_shapes(call);
  check_statistics(call.log_sum_exp);
  const AttentionShape& s = call.shape;
  if (is_empty(s)) return;
  const int64_t group = sequences_at_once(s);
  for (int64_t first = 0; first < s.batch; first += group) {
    Key key = contiguous_key(Pass::kBackward, s, std::min(group, s.batch - first));
    key.qkv = call.qkv.stride;
    key.out = call.out.stride;
    key.d_out = call.d_out.stride;
    key.d_qkv = call.d_qkv.stride;
    const SdpaGraph& graph = library().get(key);
    std::unordered_map<int64_t, void*> pointers{{kQ, part_of(call.qkv, s, first, 0)},
                                                {kK, part_of(call.qkv, s, first, 1)},
                                                {kV, part_of(call.qkv, s, first, 2)},
                                                {kO, part_of(call.out, s, first, 0)},
                                                {kStats, statistics_of(call.log_sum_exp, s, first)},
                                                {kDO, part_of(call.d_out, s, first, 0)},
                                                {kDQ, part_of(call.d_qkv, s, first, 0)},
                                                {kDK, part_of(call.d_qkv, s, first, 1)},
                                                {kDV, part_of(call.d_qkv, s, first, 2)}};
    graph.execute(library().handle.get(), pointers, workspace(graph.workspace_bytes()));
  }
}

}  // namespace mpt

#endif  // MPT_WITH_CUDNN
