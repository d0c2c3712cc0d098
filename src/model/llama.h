// A LLaMA on a device: forward, loss, backward, in micro-batches of fixed size whose memory is planned up
// front.
//
// Pre-norm blocks of RMSNorm, RoPE, causal attention and SwiGLU; untied head; mean cross entropy in row
// chunks, so that the logits of a whole batch are never stored. The same arithmetic for any number of
// threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "model/activations.h"
#include "model/llama_config.h"
#include "model/llama_ops.h"
#include "model/rope_table.h"
#include "model/weight_store.h"

namespace mpt {

struct LlamaOptions {
  BatchShape micro_batch;
  DType storage;            // of weights and activations
  int64_t loss_chunk_rows;  // tokens whose logits exist at a time; see default_loss_chunk_rows()
  Recompute recompute = Recompute::kNone;
  Keep keep = Keep::kForBackward;
};

// As many rows as fill 64 MiB of FP32 logits, at least 16.
int64_t default_loss_chunk_rows(const LlamaConfig& config, const BatchShape& micro_batch);

// Rows of tokens and what each should predict, in host memory; -1 predicts nothing.
struct TokenBatch {
  std::span<const int32_t> tokens;   // [rows, T]
  std::span<const int32_t> targets;  // [rows, T]
};

struct BackwardOptions {
  float gradient_scale;   // of the sum of losses: 1 / (targets of the whole step) for the mean
  Accumulate accumulate;  // kNo for the first micro-batch of a step
};

class Llama {
 public:
  Llama(const LlamaConfig& config, const LlamaOptions& options, const WeightStore& weights, Device& device,
        Allocator& allocator);

  // Sum of the losses (nats) of the targets of up to micro_batch.rows rows; gradients go to the weight store.
  double forward_backward(const TokenBatch& batch, const BackwardOptions& options);
  // Rounds gradients that were gathered in FP32 to their format. Call once, after the last micro-batch of a
  // step.
  void finish_gradients();

  // Sum of the losses only.
  double evaluate(const TokenBatch& batch);
  // The loss of every position of the last micro-batch, 0 where there is no target.
  [[nodiscard]] std::span<const float> token_losses() const {
    return std::span(host_losses_).first(size_t(rows_ * options_.micro_batch.seq_len));
  }
  // Logits of every position, [rows T, V], as FP32.
  std::vector<float> logits(std::span<const int32_t> tokens);

 private:
  enum class Pass : uint8_t { kFirst, kRecompute };

  void load(const TokenBatch& batch);
  void forward();
  void forward_layer(int64_t layer, Pass pass);
  double loss_of(const BackwardOptions* backward);
  void loss_chunk(int64_t first_row, const BackwardOptions* backward);
  void backward(Accumulate accumulate);
  void backward_mlp(int64_t layer, Accumulate accumulate);
  void backward_attention(int64_t layer, Accumulate accumulate);
  void backward_norm(const Tensor& x, const Tensor& inv_rms, int64_t gain, Accumulate accumulate);
  void backward_embedding(Accumulate accumulate);

  void linear(const Tensor& x, const Tensor& weight, const Tensor& y);
  void linear_backward(const Tensor& d_y, const Tensor& x, int64_t param, const Tensor& d_x,
                       Accumulate accumulate);
  void norm(const Tensor& residual, const Tensor& branch, const Tensor& sum, const Tensor& out,
            const Tensor& inv_rms, int64_t gain);
  void rotate(const Tensor& qkv, float direction);
  [[nodiscard]] AttentionShape attention_shape() const;
  [[nodiscard]] Tensor live(const Tensor& t) const;       // the rows of the current micro-batch
  [[nodiscard]] Tensor wide_scratch(int64_t cols) const;  // [N, cols] over the shared scratch
  [[nodiscard]] std::vector<GemmCall> products() const;
  void allocate_gradient_scratch(Allocator& allocator);

  LlamaConfig config_;
  LlamaOptions options_;
  const WeightStore& weights_;
  Device& device_;
  std::unique_ptr<LlamaOps> ops_;
  Activations acts_;
  RopeTable rope_;
  Tensor tokens_, targets_;       // [1, N] int32
  Tensor losses_;                 // [1, N] fp32
  Tensor logits_;                 // [chunk, V]
  Tensor d_residual_, d_branch_;  // [N, C] gradients of the residual stream and of a block half's input
  Tensor d_wide_;                 // [N, max(3C, F)] gradients inside a block half
  Tensor d_gain_partial_;         // [norm_chunks(N), C] fp32
  Tensor first_use_, uses_;       // embedding backward: [1, V + 1], [1, N] int32
  std::vector<int32_t> host_first_, host_uses_;
  std::vector<float> host_losses_;
  std::span<const int32_t> host_tokens_;
  int64_t rows_ = 0;  // of the current micro-batch
};

}  // namespace mpt
