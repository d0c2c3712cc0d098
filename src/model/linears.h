// The GEMMs of the linear layers and the head, forward and backward, in their compute format.
//
//   y = x W^T,   dx = dy W,   dW (+)= dy^T x
// In FP8 every operand is cast with its own scale (docs/numerics.md "FP8 GEMMs"): x and W to E4M3,
// dy to E5M2. Outside FP8, operands are read as stored. Fused neighbors (q, k, v; gate, up) are one
// GEMM with one W and one dy. If FP8 GEMMs require contiguous k (Fp8Layout::kRowsOfK), all have the
// form A B^T and casts write the transposed codes:
//
//   y = x W^T,   dx = dy (W^T)^T,   dW (+)= (dy^T) (x^T)^T
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "model/activations.h"
#include "model/gradient_hooks.h"
#include "model/llama_config.h"
#include "model/quantized_matrix.h"
#include "model/weight_store.h"
#include "precision/fp8_scaling.h"

namespace mpt {

enum class Linear : int64_t { kQkv, kO, kGateUp, kDown };
inline constexpr int64_t kLinearsPerLayer = 4;

// Index among all linear layers: by layer, then the head.
inline int64_t linear_index(int64_t layer, Linear which) {
  return kLinearsPerLayer * layer + int64_t(which);
}
inline int64_t head_linear(const LlamaConfig& config) {
  return kLinearsPerLayer * config.num_hidden_layers;
}

// Layers whose FP8 weight codes are in memory. The bits are the same either way.
enum class WeightCodes : uint8_t {
  kAllLayers,  // each is cast once for all GEMMs that read it
  kOneLayer    // each is cast just before a GEMM, into the layout it reads; the head's are kept
};

struct LinearsOptions {
  BatchShape micro_batch;
  DType storage;            // type of y, dy and dx, and of all operands outside FP8
  int64_t loss_chunk_rows;  // rows of the head's GEMMs
  Keep keep = Keep::kForBackward;
  std::optional<PrecisionConfig> fp8{};  // its fp8_* keys, if linear layers compute in FP8
  Multiply multiply = Multiply::kFull;   // for GEMMs outside FP8
  WeightCodes weight_codes = WeightCodes::kAllLayers;
};

struct LinearBackward {
  Tensor d_y;         // [rows, out] storage; not read if its producer has cast it
  QuantizedMatrix x;  // [rows, in]; only for_backward() is read
  Tensor d_x;         // [rows, in] storage
  Accumulate accumulate = Accumulate::kNo;
};

// Scaling state of one operand, for telemetry: "model.layers.0.qkv.input", ".weight",
// ".output_gradient".
struct Fp8OperandState {
  std::string name;
  Fp8SlotState state;
};

class Linears {
 public:
  Linears(const LlamaConfig& config, const LinearsOptions& options, const WeightStore& weights,
          Device& device, Allocator& allocator);

  [[nodiscard]] bool in_fp8(int64_t linear) const;

  // Call after setting the masters of a parameter group, and after every step. With
  // fp8_weight_recast=step the weights get their scales only here.
  void update_casts(int64_t group);
  void update_casts();  // all groups
  // Call before a forward pass: like update_casts(), if weights are cast in every micro-batch.
  void begin_forward(int64_t group, Fp8CastKind kind);
  // Casts x (storage type or fp32) into the layouts present in `operand`, for forward() and
  // backward(). Does nothing outside FP8, where source and operand are the same tensor.
  void cast_input(int64_t linear, const Tensor& source, const QuantizedMatrix& operand,
                  Fp8CastKind kind);
  // Like the other cast_input(), for an x computed by `casts` and first rounded to the type of
  // fp8_cast_source.
  void cast_input(int64_t linear, Fp8Casts& casts, const QuantizedMatrix& operand,
                  Fp8CastKind kind);
  // The cast that cast_input() would run, for an operation that casts the x it computes. nullopt
  // outside FP8 and where the scale is not known in advance.
  [[nodiscard]] std::optional<Fp8CastCall> input_cast(int64_t linear,
                                                      const QuantizedMatrix& operand,
                                                      Fp8CastKind kind) const;
  void forward(int64_t linear, const QuantizedMatrix& x, const Tensor& y);
  // The cast of dy [rows, out], for the operation that computes dy for the next backward(), which
  // must be that of `linear`: it can cast in the same pass. nullopt where dy is not cast, or where
  // the scale is not known in advance.
  [[nodiscard]] std::optional<Fp8CastCall> gradient_cast(int64_t linear, int64_t rows);
  // Computes dW first, then dx.
  void backward(int64_t linear, const LinearBackward& call);

  // Sets the hooks that reduce amaxes over ranks from now on. `hooks` must outlive this object.
  void set_hooks(GradientHooks& hooks) { hooks_ = &hooks; }
  // Scale updates: call after a training forward, after its backward and at the end of a step.
  void end_forward();
  void end_backward();
  void end_step();
  // Call after an evaluation that is divided among ranks, in case its amaxes are recorded.
  void reduce_amaxes();

  // Resets scales to their values before the first step.
  void reset_scales();
  // States that a checkpoint must hold to reproduce the next step.
  [[nodiscard]] std::vector<NamedTensor> named_states() const;
  [[nodiscard]] std::vector<Fp8OperandState> operand_states() const;

 private:
  struct Scaled {
    QuantizedMatrix operand;
    const float* scale_inv = nullptr;
  };

  struct Range {
    int64_t first = 0, end = 0;
  };

  [[nodiscard]] int64_t parameter(int64_t linear) const;
  [[nodiscard]] Range linears_of_group(int64_t group) const;
  [[nodiscard]] Tensor planned_weight(int64_t linear, DType dtype) const;
  [[nodiscard]] Scaled weight(int64_t linear) const;
  [[nodiscard]] Scaled input(int64_t linear, const QuantizedMatrix& x) const;
  [[nodiscard]] Fp8Part computed_part(const QuantizedMatrix& operand) const;
  [[nodiscard]] QuantizedMatrix gradient_codes(int64_t linear, int64_t rows) const;
  Scaled output_gradient(int64_t linear, const Tensor& d_y);
  [[nodiscard]] bool rows_of_k(int64_t linear) const;
  [[nodiscard]] Multiply forward_multiply(int64_t linear) const;
  [[nodiscard]] Multiply backward_multiply(int64_t linear) const;
  [[nodiscard]] GemmCall input_gradient(int64_t linear, const Scaled& d_y, const Scaled& w,
                                        const Tensor& d_x) const;
  [[nodiscard]] GemmCall weight_gradient(int64_t linear, const Scaled& d_y, const Scaled& x) const;
  void multiply(ProfileScopeName name, const GemmCall& call);
  [[nodiscard]] bool is_cast_for_use(int64_t linear) const;
  [[nodiscard]] std::vector<Fp8Part> weight_parts(int64_t linear,
                                                  const QuantizedMatrix& codes) const;
  void cast_weights(int64_t group, Fp8CastKind kind);
  void cast_for_use(int64_t linear, const QuantizedMatrix& codes);
  [[nodiscard]] QuantizedMatrix allocate_weight_codes(int64_t linear, Allocator& allocator) const;
  void roll(Fp8Scaling& scaling);
  void allocate_fp8(Device& device, Allocator& allocator);
  [[nodiscard]] std::vector<GemmCall> gemms() const;
  [[nodiscard]] int64_t linears_in_fp8() const;

  LlamaConfig config_;
  LinearsOptions options_;
  const WeightStore& weights_;
  Device& device_;
  GradientHooks* hooks_ = &GradientHooks::none();
  std::unique_ptr<Fp8Scaling> forward_;   // slot 2 i: x, slot 2 i + 1: W
  std::unique_ptr<Fp8Scaling> backward_;  // slot i: dy
  // [out, in] e4m3, padding included; with WeightCodes::kOneLayer, layers share those of the first
  std::vector<QuantizedMatrix> weight_codes_;
  QuantizedMatrix gradient_codes_;        // [1, largest dy] e5m2, both layouts
  std::optional<int64_t> cast_gradient_;  // the linear whose dy has been cast into it
};

}  // namespace mpt
