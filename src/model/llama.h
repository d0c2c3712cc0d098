// A LLaMA on a device: forward, loss and backward over micro-batches of fixed maximum size. All
// memory is planned up front.
//
// Pre-norm blocks of RMSNorm, RoPE, causal attention with grouped queries and SwiGLU; a head,
// separate or tied to the embedding; mean cross entropy in row chunks, so the logits of a whole
// batch are never stored. Results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/attention_scope.h"
#include "device/device.h"
#include "model/activations.h"
#include "model/formulas/rope_table.h"
#include "model/linears.h"
#include "model/llama_config.h"
#include "model/llama_ops.h"
#include "model/quantized_matrix.h"
#include "model/weight_store.h"

namespace mpt {

struct LlamaOptions {
  BatchShape micro_batch;
  DType storage;            // type of activations, and of weights as operations read them
  int64_t loss_chunk_rows;  // tokens whose logits exist at a time; see default_loss_chunk_rows()
  Recompute recompute = Recompute::kNone;
  Keep keep = Keep::kForBackward;
  std::optional<PrecisionConfig> fp8{};  // its fp8_* keys, if linear layers compute in FP8
  Multiply multiply = Multiply::kFull;   // for GEMMs outside FP8
  int64_t micro_batches = 1;             // largest number staged at once
  WeightCodes weight_codes = WeightCodes::kAllLayers;  // FP8 only
  AttentionScope attention = AttentionScope::kRow;     // kDocument: positions restart as well
  float z_loss = 0;                                    // formulas/cross_entropy.h
};

// Rows that fill 64 MiB of FP32 logits (1 GiB on a GPU, which needs large GEMMs), as a multiple of
// 16; at most all rows.
int64_t default_loss_chunk_rows(const LlamaConfig& config, const BatchShape& micro_batch,
                                Backend backend = Backend::kCpu);

// Rows of tokens and their targets, in host memory; target -1: ignored.
struct TokenBatch {
  std::span<const int32_t> tokens;   // [rows, T]
  std::span<const int32_t> targets;  // [rows, T]
  // [rows, T], for AttentionScope::kDocument; none: every row is one document.
  std::span<const int32_t> document_begin{};
};

struct BackwardOptions {
  float gradient_scale;   // of the loss sum: 1 / (targets of the whole step) for the mean
  Accumulate accumulate;  // kNo for the first micro-batch of a step
};

class Llama {
 public:
  Llama(const LlamaConfig& config, const LlamaOptions& options, const WeightStore& weights,
        Device& device, Allocator& allocator);

  // Call after setting the master weights and at the end of every step, even if nothing changed:
  // FP8 casts the weights here. Decoded weights must be current (WeightStore::decode_weights()).
  void update_casts() { linears_.update_casts(); }
  // Casts one parameter group only.
  void update_casts(int64_t group) { linears_.update_casts(group); }

  // Sets the hooks to call from now on. `hooks` must stay alive as long as this object, or until
  // the next set_hooks().
  void set_hooks(GradientHooks& hooks);

  // A step in three calls. stage() writes the rows of a step, micro-batch by micro-batch, to pinned
  // host memory; work on earlier rows must have finished. `gradient_scale` multiplies the sum of
  // losses: 1 / (targets of the whole step) for the mean. forward_backward() enqueues the same work
  // for a micro-batch every time; gradients go to the weight store.
  void stage(const TokenBatch& step, float gradient_scale);
  void forward_backward(int64_t micro_batch, Accumulate accumulate);
  // Takes part in a micro-batch of other ranks in which this rank has no rows.
  void skip_micro_batch();
  // losses(): loss sum (nats) of each micro-batch, fp64 [1, micro-batches] in device memory.
  // loss(): their total, valid after Device::synchronize().
  [[nodiscard]] Tensor losses() const {
    return loss_sums_.tensor.columns(0, staged_micro_batches());
  }
  [[nodiscard]] double loss() const;

  // Runs all three calls, for up to micro_batch.rows rows.
  double forward_backward(const TokenBatch& batch, const BackwardOptions& options);
  // Rounds gradients accumulated in FP32 to their format. Call after the last micro-batch of a
  // step, unless gradients are still to be summed over ranks.
  void round_gradients();
  // Updates the FP8 scales that are updated once per step.
  void end_step() { linears_.end_step(); }
  // Calls round_gradients() and end_step().
  void finish_gradients() {
    round_gradients();
    end_step();
  }

  // Call after the last evaluate() of an evaluation whose rows are divided among ranks.
  void end_evaluation() { linears_.reduce_amaxes(); }
  // Runs forward only. Returns the sum of the losses.
  double evaluate(const TokenBatch& batch);
  // Runs forward only, without losses; scales of FP8 operands stay unchanged. Does not wait for the
  // device, unlike visit_logits().
  void read(const TokenBatch& batch);
  // Passes to `visit` the logits [V] at each of `positions` of the last micro-batch given to
  // evaluate() or read(), with the index in `positions`. Positions count over all rows and must
  // ascend.
  void visit_logits(std::span<const int64_t> positions,
                    const std::function<void(size_t, std::span<const float>)>& visit);
  // Loss of every position of the last micro-batch; 0 where there is no target.
  std::span<const float> token_losses();
  // Returns the logits of every position, [rows T, V], as FP32. FP8 scales treat this as an
  // evaluation.
  std::vector<float> logits(std::span<const int32_t> tokens,
                            std::span<const int32_t> document_begin = {});

  // FP8 scaling states, as tensors for a checkpoint and for the log. Empty outside FP8.
  [[nodiscard]] std::vector<NamedTensor> named_states() const { return linears_.named_states(); }
  void reset_scales() { linears_.reset_scales(); }  // to their values before the first step
  [[nodiscard]] std::vector<Fp8OperandState> fp8_states() const {
    return linears_.operand_states();
  }

 private:
  enum class Pass : uint8_t { kFirst, kRecompute };

  void begin_use(int64_t group);
  void gradients_added(int64_t group);
  void stage_tokens(const TokenBatch& batch);
  void stage_documents(std::span<const int32_t> document_begin);
  void sort_uses(int64_t micro_batch);
  [[nodiscard]] int64_t staged_micro_batches() const;
  // Makes a staged micro-batch current and enqueues its copy to the device.
  void load(int64_t micro_batch);
  void forward(Fp8CastKind kind, Keep keep);
  // Computes the logits of the loss chunk that begins at position `first` of the micro-batch, in
  // logits_.
  [[nodiscard]] Tensor head_logits(int64_t first);
  void download_logits(const Tensor& logits, std::span<float> target);
  void embed();
  void forward_layer(int64_t layer, Pass pass);
  void recompute_layer(int64_t layer);
  void enqueue_losses(const Accumulate* backward);
  void loss_chunk(int64_t first_row, const Accumulate* backward);
  void cross_entropy(const CrossEntropyCall& call);
  void backward(Accumulate accumulate);
  void backward_mlp(int64_t layer, Accumulate accumulate);
  // Compute the gradient of the y of `linear`, into qkv or gate_up, or directly as FP8 codes.
  void backward_rotate(int64_t linear, const Tensor& d_qkv);
  void backward_swiglu(int64_t linear, const Tensor& gate_up, const Tensor& d_out);
  void backward_attention(int64_t layer, Accumulate accumulate);
  // Backward of a norm whose output gradient is in d_branch_: adds to d_residual_.
  struct NormedGradient {
    Tensor x, inv_rms;
    int64_t gain;
    Accumulate accumulate;
    std::optional<int64_t> next;  // the linear whose backward reads d_residual_ next
  };
  void backward_norm(const NormedGradient& n);
  static std::optional<int64_t> last_linear_before(int64_t layer);
  void backward_embedding(Accumulate accumulate);

  // A norm, and the FP8 cast of its output if an FP8 linear layer reads it.
  struct NormedInput {
    Tensor residual, branch{}, sum{};  // see NormForwardCall
    Tensor inv_rms;
    int64_t gain;
    int64_t linear;
    QuantizedMatrix out;
  };
  void norm(const NormedInput& n);
  void swiglu(int64_t linear, const Tensor& gate_up, const QuantizedMatrix& out);
  void norm_heads(int64_t layer);
  void backward_norm_heads(int64_t layer, const Tensor& d_qkv, Accumulate accumulate);
  [[nodiscard]] RopeCall rotation(const Tensor& qkv, float direction) const;
  void rotate(const Tensor& qkv);
  void attend(const LayerActivations& a);
  void attend_backward(const LayerActivations& a, const Tensor& d_qkv);
  [[nodiscard]] AttentionShape attention_shape() const;
  [[nodiscard]] Tensor document_begin() const;       // of the current micro-batch, if it is used
  [[nodiscard]] Tensor live(const Tensor& t) const;  // rows of the current micro-batch
  [[nodiscard]] QuantizedMatrix live(const QuantizedMatrix& operand) const;
  // Views of d_wide_ and d_branch_ with `cols` columns.
  [[nodiscard]] Tensor wide_scratch(int64_t cols) const { return narrow(d_wide_, cols); }
  [[nodiscard]] Tensor branch_scratch(int64_t cols) const { return narrow(d_branch_, cols); }
  [[nodiscard]] Tensor narrow(const Tensor& scratch, int64_t cols) const;
  [[nodiscard]] Fp8CastKind evaluation_cast() const;
  void cast_input(int64_t linear, const ComputedInput& input, const QuantizedMatrix& operand);
  void cast_attention(int64_t linear, const LayerActivations& a);
  // The operand with only those layouts that this pass's GEMMs read.
  [[nodiscard]] QuantizedMatrix wanted(const QuantizedMatrix& operand) const;
  void allocate_gradient_scratch(Allocator& allocator);

  LlamaConfig config_;
  LlamaOptions options_;
  const WeightStore& weights_;
  Device& device_;
  std::unique_ptr<LlamaOps> ops_;
  Linears linears_;
  GradientHooks* hooks_ = &GradientHooks::none();
  Activations acts_;
  RopeTable rope_;
  PinnedBuffer tokens_, targets_;  // [micro-batches, N] int32
  PinnedBuffer document_begin_;    // [micro-batches, N] int32, with AttentionScope::kDocument
  PinnedBuffer gradient_scale_;    // [1, 1] fp32
  Tensor losses_;                  // [1, N] fp32
  PinnedBuffer loss_sums_;         // [1, micro-batches] fp64
  Tensor logits_;                  // [chunk, V]
  Tensor d_residual_;              // [N, C] gradient of the residual stream
  Tensor d_branch_;        // [N, max(C, H D)] gradient of a block half's or the attention's output
  Tensor d_wide_;          // [N, max((H + 2 K) D, F)] gradients inside a block half
  Tensor d_gain_partial_;  // [norm_chunks(N), max(C, 2 D)] fp32
  PinnedBuffer uses_;      // [micro-batches, N] int32: positions, sorted by their token
  Tensor first_use_;       // [1, V + 1] int32: start of the uses of each embedding row
  std::vector<int32_t> counts_;  // [V]
  std::vector<float> host_losses_;
  int64_t staged_rows_ = 0;                // rows of all staged micro-batches
  int64_t micro_batch_ = 0, rows_ = 0;     // the current micro-batch and its number of rows
  Fp8CastKind cast_ = Fp8CastKind::kFold;  // for inputs in the current pass
  Keep keep_ = Keep::kForBackward;         // whether backward will read the current casts
};

}  // namespace mpt
