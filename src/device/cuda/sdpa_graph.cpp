#include "device/cuda/sdpa_graph.h"

#ifdef MPT_WITH_CUDNN

#include <cmath>
#include <source_location>
#include <utility>
#include <vector>

#include <cudnn.h>
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // graphs are not serialised
#include <cudnn_frontend.h>

#include "device/cuda/cuda_handles.h"
#include "device/cuda/document_bias.h"

namespace mpt {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using TensorHandle = std::shared_ptr<Tensor_attributes>;

// First line of cuDNN's message.
std::optional<std::string> objection_of(const fe::error_t& answer) {
  if (answer.is_good()) return std::nullopt;
  return answer.err_msg.substr(0, answer.err_msg.find('\n'));
}

bool is_of_keys(SdpaTensor id) {
  using enum SdpaTensor;
  return id == kK || id == kV || id == kDK || id == kDV;
}

// [B, H or K, T, D] with the heads next to each other in rows of `stride` elements.
void describe_heads(Tensor_attributes& tensor, const SdpaKey& key, SdpaTensor id, int64_t stride) {
  tensor.set_uid(int64_t(id))
      .set_dim(
          {key.batch, is_of_keys(id) ? key.key_value_heads : key.heads, key.seq_len, key.head_dim})
      .set_stride({key.seq_len * stride, key.head_dim, stride, 1})
      .set_data_type(fe::DataType_t::BFLOAT16);
}

void describe_statistics(Tensor_attributes& tensor, const SdpaKey& key) {
  tensor.set_uid(int64_t(SdpaTensor::kStats))
      .set_dim({key.batch, key.heads, key.seq_len, 1})
      .set_stride({key.heads * key.seq_len, key.seq_len, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

// A single bias for all heads.
void describe_bias(Tensor_attributes& tensor, const SdpaKey& key) {
  const int64_t stride = document_bias_stride(key.seq_len), matrix = key.seq_len * stride;
  tensor.set_uid(int64_t(SdpaTensor::kBias))
      .set_dim({key.batch, 1, key.seq_len, key.seq_len})
      .set_stride({matrix, matrix, stride, 1})
      .set_data_type(fe::DataType_t::BFLOAT16);
}

float score_scale(const SdpaKey& key) { return 1.0f / std::sqrt(float(key.head_dim)); }

}  // namespace

SdpaKey forward_key(const AttentionShape& s, int64_t batch) {
  return {.pass = AttentionPass::kForward,
          .deterministic = DeterministicAttention::kOn,
          .batch = batch,
          .seq_len = s.seq_len,
          .heads = s.heads,
          .key_value_heads = s.key_value_heads,
          .head_dim = s.head_dim,
          .qkv = s.qkv_width(),
          .out = s.query_width(),
          .d_out = 0,
          .d_qkv = 0,
          .scope = s.scope};
}

SdpaKey backward_key(const AttentionShape& s, int64_t batch, DeterministicAttention deterministic) {
  SdpaKey key = forward_key(s, batch);
  key.pass = AttentionPass::kBackward;
  key.deterministic = deterministic;
  key.d_out = key.out;
  key.d_qkv = key.qkv;
  return key;
}

struct SdpaGraph::Graph {
  fe::graph::Graph graph;

  Graph() {
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  std::optional<std::string> describe(const DescribedGpu& gpu) {
    const auto properties = std::make_shared<fe::DeviceProperties>();
    graph.set_device_properties(properties);
    graph.set_sm_version(gpu.capability);
    graph.set_sm_count(gpu.multiprocessors);
    return objection_of(properties->deserialize({gpu.properties.begin(), gpu.properties.end()}));
  }

  // Operations query the GPU when they are added, so it is described first.
  void add(const SdpaKey& key) {
    if (key.pass == AttentionPass::kForward)
      add_forward(key);
    else
      add_backward(key);
  }

  TensorHandle input(const SdpaKey& key, SdpaTensor id, int64_t stride) {
    Tensor_attributes tensor;
    describe_heads(tensor, key, id, stride);
    return graph.tensor(tensor);
  }
  static void output(const TensorHandle& tensor, const SdpaKey& key, SdpaTensor id,
                     int64_t stride) {
    describe_heads(*tensor, key, id, stride);
    tensor->set_output(true);
  }

  // For a pass in either direction: restricts what a query sees.
  template <class Options>
  void set_mask(Options& options, const SdpaKey& key) {
    options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
    if (key.scope == AttentionScope::kRow) return;
    Tensor_attributes bias;
    describe_bias(bias, key);
    options.set_bias(graph.tensor(bias));
  }

  void add_forward(const SdpaKey& key) {
    auto options = fe::graph::SDPA_attributes()
                       .set_name("attention")
                       .set_generate_stats(true)
                       .set_attn_scale(score_scale(key));
    set_mask(options, key);
    auto [out, statistics] =
        graph.sdpa(input(key, SdpaTensor::kQ, key.qkv), input(key, SdpaTensor::kK, key.qkv),
                   input(key, SdpaTensor::kV, key.qkv), std::move(options));
    output(out, key, SdpaTensor::kO, key.out);
    describe_statistics(*statistics, key);
    statistics->set_output(true);
  }

  void add_backward(const SdpaKey& key) {
    auto options =
        fe::graph::SDPA_backward_attributes()
            .set_name("attention_backward")
            .set_attn_scale(score_scale(key))
            .set_deterministic_algorithm(key.deterministic == DeterministicAttention::kOn);
    set_mask(options, key);
    Tensor_attributes statistics;
    describe_statistics(statistics, key);
    auto [d_q, d_k, d_v] = graph.sdpa_backward(
        input(key, SdpaTensor::kQ, key.qkv), input(key, SdpaTensor::kK, key.qkv),
        input(key, SdpaTensor::kV, key.qkv), input(key, SdpaTensor::kO, key.out),
        input(key, SdpaTensor::kDO, key.d_out), graph.tensor(statistics), std::move(options));
    output(d_q, key, SdpaTensor::kDQ, key.d_qkv);
    output(d_k, key, SdpaTensor::kDK, key.d_qkv);
    output(d_v, key, SdpaTensor::kDV, key.d_qkv);
  }
};

SdpaGraph::SdpaGraph(const SdpaKey& key) : key_(key), graph_(std::make_unique<Graph>()) {}
SdpaGraph::~SdpaGraph() = default;

std::optional<std::string> SdpaGraph::build(cudnnContext* handle) {
  graph_->add(key_);
  if (auto objection = objection_of(graph_->graph.build(handle, {fe::HeurMode_t::A})))
    return objection;
  return objection_of(graph_->graph.get_workspace_size(workspace_bytes_));
}

std::optional<std::string> SdpaGraph::build(const DescribedGpu& gpu) {
  if (auto objection = graph_->describe(gpu)) return objection;
  graph_->add(key_);
  if (auto objection = objection_of(graph_->graph.build({fe::HeurMode_t::A}))) return objection;
  return objection_of(graph_->graph.get_workspace_size(workspace_bytes_));
}

std::string SdpaGraph::plan_name() const {
  std::string name;
  const fe::error_t answer = graph_->graph.get_plan_name(name);
  return answer.is_good() ? name : "";
}

void SdpaGraph::execute(cudnnContext* handle, const std::unordered_map<SdpaTensor, void*>& tensors,
                        void* workspace) const {
  std::unordered_map<int64_t, void*> pointers;
  for (const auto& [id, data] : tensors)
    if (data != nullptr) pointers.emplace(int64_t(id), data);
  const fe::error_t answer = graph_->graph.execute(handle, pointers, workspace);
  if (answer.is_good()) return;
  throw CudaError(key_.pass == AttentionPass::kForward ? "cuDNN attention, forward"
                                                       : "cuDNN attention, backward",
                  fmt::format("cudnn-frontend error {}: {}", int(answer.code), answer.err_msg),
                  std::source_location::current());
}

}  // namespace mpt

#endif  // MPT_WITH_CUDNN
