// Weights of a model and their gradients: one tensor per entry of the parameter list, in device
// memory.
//
// master(i) is the stored weight that is updated and saved, in its encoded format. compute(i) is
// read by norms, embedding and GEMMs: the master itself if it has that element type, otherwise a
// decoded copy refreshed by decode_weights(). Fused neighbors (q, k, v; gate, up) are contiguous in
// compute tensors and gradients, and accessible as one matrix.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/named_tensor.h"
#include "core/param_spec.h"
#include "core/random.h"
#include "core/tensor.h"
#include "device/device.h"
#include "precision/codec_ops.h"
#include "precision/encoded_tensor.h"
#include "ranks/partition.h"

namespace mpt {

// Copies of weights in the format that GEMMs read.
inline constexpr MemoryPurpose kComputeWeightMemory{"compute weights"};
inline constexpr MemoryPurpose kGradientMemory{"gradients"};

inline constexpr RandomStream kInitStream{0};  // for initial weights

enum class Gradients : uint8_t { kAllocate, kNone };

// Whether linear layers have a compute() tensor. FP8 GEMMs cast from the masters and need none.
enum class LinearCopies : uint8_t { kDecoded, kNone };

struct WeightOptions {
  DType storage;                            // of compute tensors: fp32 or bf16
  DType gradient;                           // gradients are rounded to this once per step
  int64_t additions = 1;                    // additions to a gradient per step (micro-batches)
  int64_t head_additions = 1;               // from the LM head: chunks per micro-batch
  std::optional<WeightEncoding> linears{};  // masters of linear layers; none: type `storage`
  LinearCopies linear_copies = LinearCopies::kDecoded;
  Gradients gradients = Gradients::kAllocate;

  [[nodiscard]] WeightEncoding encoding_of(ParamKind kind) const;
};

class WeightStore {
 public:
  WeightStore(std::vector<ParamSpec> specs, const WeightOptions& options, Device& device,
              Allocator& allocator);

  [[nodiscard]] const std::vector<ParamSpec>& specs() const { return specs_; }
  [[nodiscard]] const WeightOptions& options() const { return options_; }

  // Logical elements; padding around them is zero.
  [[nodiscard]] const EncodedTensor& master(int64_t i) const { return masters_[size_t(i)]; }
  // Physical: includes padding. Empty for linear layers with LinearCopies::kNone.
  [[nodiscard]] const Tensor& compute(int64_t i) const { return compute_[size_t(i)]; }
  [[nodiscard]] bool has_gradients() const { return !gradients_.empty(); }
  // Physical. BF16 if `gradient` is bf16 and a step writes it only once, else FP32; see
  // rounded_later().
  [[nodiscard]] const Tensor& gradient(int64_t i) const { return gradients_[size_t(i)]; }
  // Parameter i and its fused neighbors, as one matrix.
  [[nodiscard]] Tensor compute_fused(int64_t i) const { return fused(compute_, i); }
  [[nodiscard]] Tensor gradient_fused(int64_t i) const { return fused(gradients_, i); }

  // Decodes the masters into the copies. Call after every change of the masters: after
  // initialization, loading and each optimizer step.
  void decode_weights() const;
  // Decodes parameters [first, first + count) only.
  void decode_weights(int64_t first, int64_t count) const;

  // True if gradient(i) accumulates in FP32 and must be rounded to bf16 after the last addition.
  [[nodiscard]] bool rounded_later(int64_t i) const;

  // Pieces of all masters: weights under their Hugging Face names, with their scales.
  [[nodiscard]] std::vector<NamedTensor> named_tensors() const;
  // Pieces of one rank's update blocks in a partition of the parameters. The parts of all ranks
  // together hold every element once.
  [[nodiscard]] std::vector<TensorPart> named_parts(const Partition& partition, int64_t rank) const;
  // Logical part of every compute(i) under its Hugging Face name, for use without training.
  // Requires LinearCopies::kDecoded and a prior decode_weights().
  [[nodiscard]] std::vector<NamedTensor> decoded_tensors() const;

 private:
  // Whether GEMMs read a copy of parameter i rather than its master.
  [[nodiscard]] bool is_copied(ParamKind kind) const;
  void allocate_group(size_t first, Allocator& allocator);
  void allocate_gradients(Allocator& allocator);
  [[nodiscard]] DType gradient_container(const ParamSpec& spec) const;
  [[nodiscard]] Tensor fused(const std::vector<Tensor>& tensors, int64_t i) const;

  std::vector<ParamSpec> specs_;
  WeightOptions options_;
  std::vector<EncodedTensor> masters_;
  std::vector<Tensor> compute_, gradients_;
  std::unique_ptr<CodecOps> ops_;  // null without copies
};

// Logical part of a physical tensor.
Tensor logical_view(const ParamSpec& spec, const Tensor& physical);

// Sets matrices to N(0, initializer_range) and gains to 1, as a function of (seed, tensor, row,
// column) only (docs/numerics.md "Initial weights"), encoded from the same FP32 draw in every
// format. Includes decode_weights().
void initialize_weights(const WeightStore& weights, double initializer_range, uint64_t seed,
                        Device& device);

}  // namespace mpt
