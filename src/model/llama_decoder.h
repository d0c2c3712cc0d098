// Runs a LLaMA one token at a time for generation, with a cache of keys and values.
//
// Uses Llama's formulas and its order of operations per token, so logits equal those of Llama on
// the whole sequence, up to the order of sums. The constructor allocates all memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "model/formulas/rope_table.h"
#include "model/llama_config.h"
#include "model/llama_ops.h"
#include "model/weight_store.h"

namespace mpt {

struct DecoderOptions {
  DType storage;          // type of weights, activations and cache
  int64_t max_positions;  // tokens that fit into the cache
};

class LlamaDecoder {
 public:
  LlamaDecoder(const LlamaConfig& config, const DecoderOptions& options, const WeightStore& weights,
               Device& device, Allocator& allocator);

  // Appends a token and returns the logits [V] for the next one. Throws Error if the cache is full.
  std::vector<float> next_logits(int32_t token);
  // Forgets all tokens.
  void reset() { rewind(0); }
  // Forgets the tokens after the first `position`. At least `position` tokens must have been
  // appended.
  void rewind(int64_t position);

  [[nodiscard]] int64_t position() const { return position_; }  // tokens appended so far
  [[nodiscard]] int64_t max_positions() const { return options_.max_positions; }

 private:
  void allocate(Allocator& allocator);
  void forward(int32_t token);
  void forward_layer(int64_t layer);
  void norm(const Tensor& residual, const Tensor& branch, const Tensor& sum, int64_t gain);
  void norm_heads(int64_t layer);
  void linear(const Tensor& x, const Tensor& weight, const Tensor& y);
  [[nodiscard]] std::vector<GemmCall> gemms() const;

  struct Cache {
    Tensor keys, values;  // [positions, K D]
  };

  LlamaConfig config_;
  DecoderOptions options_;
  const WeightStore& weights_;
  Device& device_;
  std::unique_ptr<LlamaOps> ops_;
  RopeTable rope_;
  std::vector<Cache> caches_;  // one per layer
  Tensor token_;               // [1, 1] int32
  Tensor residual_, middle_;   // [1, C] the residual stream before and within a block
  Tensor normed_;              // [1, C]
  Tensor inv_rms_;             // [1, 1] fp32
  Tensor qkv_;                 // [1, (H + 2 K) D]
  Tensor qk_before_norm_;      // [1, (H + K) D] with qk_norm
  Tensor qk_inv_rms_;          // [1, H + K] fp32
  Tensor scores_;              // [H, positions] fp32
  Tensor attention_;           // [1, H D]
  Tensor branch_;              // [1, C] output of the block half just computed, not yet added
  Tensor gate_up_;             // [1, 2F]
  Tensor mlp_;                 // [1, F]
  Tensor logits_;              // [1, V]
  int64_t position_ = 0;
};

}  // namespace mpt
