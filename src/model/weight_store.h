// The weights of a model and their gradients: one tensor per entry of the parameter list, in device memory.
//
// master(i) is what is stored and updated, compute(i) what the products read. Today's formats are read as
// they are stored, so both are the same tensor. Fused neighbours (q, k, v; gate, up) lie together and can be
// had as one matrix.
#pragma once

#include <cstdint>
#include <vector>

#include "core/named_tensor.h"
#include "core/param_spec.h"
#include "device/device.h"

namespace mpt {

struct WeightOptions {
  DType storage;               // of the weights
  DType gradient;              // gradients are rounded to this once per step
  int64_t additions = 1;       // how often a step adds to a gradient (micro-batches)
  int64_t head_additions = 1;  // the same for the LM head, which is worked through in chunks
};

enum class Gradients : uint8_t { kAllocate, kNone };

class WeightStore {
 public:
  WeightStore(std::vector<ParamSpec> specs, const WeightOptions& options, Gradients gradients,
              Allocator& allocator);

  [[nodiscard]] const std::vector<ParamSpec>& specs() const { return specs_; }
  [[nodiscard]] const WeightOptions& options() const { return options_; }

  // Physical tensors, padding included.
  [[nodiscard]] const Tensor& master(int64_t i) const { return weights_[size_t(i)]; }
  [[nodiscard]] const Tensor& compute(int64_t i) const { return weights_[size_t(i)]; }
  [[nodiscard]] bool has_gradients() const { return !gradients_.empty(); }
  // BF16 where a step writes it once and `gradient` is bf16, else FP32; see rounded_later().
  [[nodiscard]] const Tensor& gradient(int64_t i) const { return gradients_[size_t(i)]; }
  // Parameter i and those fused with it, as one matrix.
  [[nodiscard]] Tensor compute_fused(int64_t i) const { return fused(weights_, i); }
  [[nodiscard]] Tensor gradient_fused(int64_t i) const { return fused(gradients_, i); }

  // True if gradient(i) gathers several additions in FP32 and must be rounded to bf16 when the last one is
  // in.
  [[nodiscard]] bool rounded_later(int64_t i) const;

  // The logical weights under their Hugging Face names.
  [[nodiscard]] std::vector<NamedTensor> named_tensors() const;

 private:
  [[nodiscard]] DType gradient_container(const ParamSpec& spec) const;
  [[nodiscard]] Tensor fused(const std::vector<Tensor>& tensors, int64_t i) const;

  std::vector<ParamSpec> specs_;
  WeightOptions options_;
  std::vector<Tensor> weights_, gradients_;
};

// Logical part of a physical tensor.
Tensor logical_view(const ParamSpec& spec, const Tensor& physical);

// N(0, initializer_range) for matrices, 1 for gains; a function of (seed, tensor, row, column) alone
// (NUMERICS "RNG contract"). The FP32 draw is the same for every storage format.
void initialize_weights(const WeightStore& weights, double initializer_range, uint64_t seed, Device& device);

}  // namespace mpt
