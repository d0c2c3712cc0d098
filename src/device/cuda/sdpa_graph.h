// A cuDNN plan for causal attention: what it depends on, and the plan itself.
//
// A plan is built for the GPU of a handle, or without any GPU for a described one: then cuDNN
// reports whether it supports the shape and how much workspace it requests, and nothing can be run.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "device/attention.h"
#include "device/backends.h"

struct cudnnContext;

namespace mpt {

enum class AttentionPass : uint8_t { kForward, kBackward };

// Everything that a plan depends on. Strides are between rows, in elements.
struct SdpaKey {
  AttentionPass pass;
  DeterministicAttention deterministic;  // for a backward pass
  int64_t batch, seq_len, heads, key_value_heads, head_dim;
  int64_t qkv, out, d_out, d_qkv;
  AttentionScope scope;
  auto operator<=>(const SdpaKey&) const = default;
};

// For tensors without padding, with `batch` sequences regardless of the shape's.
SdpaKey forward_key(const AttentionShape& shape, int64_t batch);
SdpaKey backward_key(const AttentionShape& shape, int64_t batch,
                     DeterministicAttention deterministic);

// Tensors of a plan; kBias (document_bias.h) only if attention is within documents.
enum class SdpaTensor : int64_t { kQ = 1, kK, kV, kO, kStats, kDO, kDQ, kDK, kDV, kBias };

// A GPU that need not exist.
struct DescribedGpu {
  int capability;          // 90: sm_90
  int multiprocessors;     // SMs
  std::string properties;  // JSON as cudnn_frontend::DeviceProperties reads it
};

class SdpaGraph {
 public:
  explicit SdpaGraph(const SdpaKey& key);
  ~SdpaGraph();
  SdpaGraph(const SdpaGraph&) = delete;
  SdpaGraph& operator=(const SdpaGraph&) = delete;

  // Builds the plan, once. Returns why cuDNN refuses; nullopt if the plan is ready.
  std::optional<std::string> build(cudnnContext* handle);
  std::optional<std::string> build(const DescribedGpu& gpu);

  [[nodiscard]] int64_t workspace_bytes() const { return workspace_bytes_; }
  // cuDNN's name for the plan: its engine and settings.
  [[nodiscard]] std::string plan_name() const;

  // Tensors that the plan does not have are null.
  void execute(cudnnContext* handle, const std::unordered_map<SdpaTensor, void*>& tensors,
               void* workspace) const;

 private:
  struct Graph;

  SdpaKey key_;
  std::unique_ptr<Graph> graph_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace mpt
