// A model on the CPU with everything it needs, its weights set and its gradients read by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/bf16.h"
#include "model/golden_model.h"
#include "model/llama.h"
#include "model/parameters.h"
#include "model/weight_store.h"
#include "support/fp8_gemm_device.h"

namespace mpt::test {

// Returns the logical elements of an fp32 or bf16 tensor, as FP32.
inline std::vector<float> values_of(Device& device, const Tensor& tensor) {
  std::vector<float> values(size_t(tensor.elements()));
  if (tensor.dtype == DType::kF32) {
    device.download(tensor, reinterpret_cast<std::byte*>(values.data()));
    return values;
  }
  std::vector<bf16> narrow(values.size());
  device.download(tensor, reinterpret_cast<std::byte*>(narrow.data()));
  std::ranges::transform(narrow, values.begin(), [](bf16 x) { return to_float(x); });
  return values;
}

// Rounds to the tensor's type.
inline void set_values(Device& device, const Tensor& tensor, const std::vector<float>& values) {
  check(int64_t(values.size()) == tensor.elements(), "{} values for {} elements", values.size(),
        tensor.elements());
  if (tensor.dtype == DType::kF32)
    return device.upload(reinterpret_cast<const std::byte*>(values.data()), tensor);
  std::vector<bf16> narrow(values.size());
  std::ranges::transform(values, narrow.begin(), bf16_nearest);
  device.upload(reinterpret_cast<const std::byte*>(narrow.data()), tensor);
}

struct BenchOptions {
  BatchShape micro_batch;
  int threads = 1;
  DType storage = DType::kF32;
  DType gradient = DType::kF32;
  int64_t additions = 1;
  int64_t loss_chunk_rows = 0;  // 0: all rows at once
  Recompute recompute = Recompute::kNone;
  Keep keep = Keep::kForBackward;
  std::optional<PrecisionConfig> fp8{};  // weights and fp8_* keys; `storage` is bf16 then
  Fp8GemmOptions fp8_gemm{};
  WeightCodes weight_codes = WeightCodes::kAllLayers;
  AttentionScope attention = AttentionScope::kRow;
};

class ModelBench {
 public:
  ModelBench(const LlamaConfig& config, const BenchOptions& options)
      : config_(config),
        options_(options),
        device_(make_cpu_device_with(options.fp8_gemm, options.threads)),
        allocator_(device_->make_allocator()),
        store_(
            llama_parameters(config),
            {.storage = options.storage,
             .gradient = options.gradient,
             .additions = options.additions,
             .head_additions = (options.micro_batch.tokens() + chunk_rows() - 1) / chunk_rows(),
             .linears = options.fp8 ? std::optional(linear_encoding(*options.fp8)) : std::nullopt,
             .linear_copies = options.fp8 ? LinearCopies::kNone : LinearCopies::kDecoded,
             .gradients =
                 options.keep == Keep::kForBackward ? Gradients::kAllocate : Gradients::kNone},
            *device_, *allocator_),
        llama_(config,
               {.micro_batch = options.micro_batch,
                .storage = options.storage,
                .loss_chunk_rows = chunk_rows(),
                .recompute = options.recompute,
                .keep = options.keep,
                .fp8 = options.fp8,
                .weight_codes = options.weight_codes,
                .attention = options.attention},
               store_, *device_, *allocator_) {}

  void set_weights(const NamedValues& weights) {
    for (const NamedTensor& named : store_.named_tensors())
      set_values(*device_, named.tensor, weights.at(named.name));
    store_.decode_weights();
    llama_.update_casts();
  }
  [[nodiscard]] NamedValues weights() {
    NamedValues all;
    for (const NamedTensor& named : store_.named_tensors())
      all[named.name] = values_of(*device_, named.tensor);
    return all;
  }
  [[nodiscard]] NamedValues gradients() {
    NamedValues all;
    for (int64_t i = 0; i < int64_t(store_.specs().size()); ++i) {
      const ParamSpec& spec = store_.specs()[size_t(i)];
      all[spec.name] = values_of(*device_, logical_view(spec, store_.gradient(i)));
    }
    return all;
  }

  // Returns the loss sum, with gradients of the mean over all targets, `rows` rows at a time.
  double step(const GoldenModel& golden, int64_t rows) {
    double loss = 0;
    for (int64_t first = 0; first < golden.batch.rows; first += rows)
      loss +=
          llama_.forward_backward(golden.rows(first, std::min(rows, golden.batch.rows - first)),
                                  {.gradient_scale = 1.0f / float(golden.predicted()),
                                   .accumulate = first == 0 ? Accumulate::kNo : Accumulate::kYes});
    llama_.finish_gradients();
    return loss;
  }

  Llama& llama() { return llama_; }
  WeightStore& store() { return store_; }
  Device& device() { return *device_; }
  Allocator& allocator() { return *allocator_; }

 private:
  [[nodiscard]] int64_t chunk_rows() const {
    return options_.loss_chunk_rows > 0 ? options_.loss_chunk_rows : options_.micro_batch.tokens();
  }

  LlamaConfig config_;
  BenchOptions options_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Allocator> allocator_;
  WeightStore store_;
  Llama llama_;
};

}  // namespace mpt::test
