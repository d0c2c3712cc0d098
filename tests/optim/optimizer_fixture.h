// An optimizer with tensors of its own on the CPU, as a run has them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/bf16.h"
#include "core/json_fields_read.h"
#include "device/cpu/cpu_device.h"
#include "optim/optimizer.h"

namespace mpt::test {

// The `optimizer` section with these keys, read as a run reads it.
inline OptimizerConfig optimizer_config(Json keys) {
  OptimizerConfig config;
  Problems problems;
  FieldReader::read(JsonDocument::of_value(std::move(keys), "test"), config, problems);
  throw_problems(problems);
  return config;
}

inline Json m_plus_adam_keys() {
  return {{"rule", "m_plus_adam"}, {"lr_additive", 1e-3}, {"lr_multiplicative", 1e-3}};
}
inline Json adamw_keys() { return {{"rule", "adamw"}, {"lr_additive", 1e-3}}; }

struct Formats {
  DType weights = DType::kF32;
  DType state = DType::kF32;
  DType gradient = DType::kF32;
};

struct TargetShape {
  int64_t rows = 1, cols = 1;
  int rank = 2;
  int64_t stride = 0;  // 0: cols
};

// Logical elements of a view, as stored.
inline std::vector<uint32_t> bits_of_tensor(const Tensor& t) {
  std::vector<uint32_t> bits;
  for (int64_t r = 0; r < t.rows; ++r)
    for (int64_t c = 0; c < t.cols; ++c)
      bits.push_back(t.dtype == DType::kF32 ? bits_of(t.as<float>()[r * t.stride + c])
                                            : t.as<bf16>()[r * t.stride + c].bits);
  return bits;
}

inline void fill_tensor(const Tensor& t, const std::function<float(int64_t, int64_t)>& value) {
  for (int64_t r = 0; r < t.rows; ++r)
    for (int64_t c = 0; c < t.cols; ++c) {
      if (t.dtype == DType::kF32)
        t.as<float>()[r * t.stride + c] = value(r, c);
      else
        t.as<bf16>()[r * t.stride + c] = bf16_nearest(value(r, c));
    }
}

class OptimizerRun {
 public:
  OptimizerRun(const OptimizerConfig& config, Formats formats, const std::vector<TargetShape>& shapes,
               int threads = 1)
      : device_(make_cpu_device(threads)), allocator_(device_->make_allocator()), config_(config) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      const TargetShape& shape = shapes[i];
      const int64_t stride = shape.stride > 0 ? shape.stride : shape.cols;
      const auto tensor = [&](Purpose purpose, DType dtype) {
        return allocator_->tensor(purpose, dtype, shape.rows, stride).columns(0, shape.cols);
      };
      targets_.push_back({.name = fmt::format("w{}", i),
                          .rank = shape.rank,
                          .weights = tensor(Purpose::kWeights, formats.weights),
                          .gradient = tensor(Purpose::kGradients, formats.gradient)});
    }
    optimizer_ = std::make_unique<Optimizer>(config, formats.state, targets_, *device_, *allocator_);
  }

  // With the peak rates of the config.
  void step(int64_t t, float grad_scale = 1.0f) {
    optimizer_->step({.t = t,
                      .lr_additive = config_.lr_additive,
                      .lr_multiplicative = config_.lr_multiplicative,
                      .grad_scale = grad_scale});
  }
  Optimizer& optimizer() { return *optimizer_; }
  [[nodiscard]] const Tensor& weights(size_t i = 0) const { return targets_[i].weights; }
  [[nodiscard]] const Tensor& gradient(size_t i = 0) const { return targets_[i].gradient; }
  [[nodiscard]] Tensor state(const std::string& name) const {
    for (const NamedTensor& named : optimizer_->named_states())
      if (named.name == name) return named.tensor;
    throw LogicError("no state " + name);
  }
  // Weights and every state, in one list: what bit equality of two runs means.
  [[nodiscard]] std::vector<uint32_t> everything() const {
    std::vector<uint32_t> all;
    const auto add = [&](const Tensor& t) {
      const std::vector<uint32_t> bits = bits_of_tensor(t);
      all.insert(all.end(), bits.begin(), bits.end());
    };
    for (const UpdateTarget& target : targets_) add(target.weights);
    for (const NamedTensor& named : optimizer_->named_states()) add(named.tensor);
    return all;
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Allocator> allocator_;
  OptimizerConfig config_;
  std::vector<UpdateTarget> targets_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace mpt::test
