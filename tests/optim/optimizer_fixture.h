// An optimizer with its own tensors, as in a run; on the CPU unless another device is given.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/bf16.h"
#include "core/json/config_reader.h"
#include "device/backends.h"
#include "optim/flat_config.h"
#include "optim/optimizer.h"

namespace mpt::test {

// Returns the `optimizer` section with these keys, as read by a run.
inline FlatConfig optimizer_config(Json keys) {
  OptimizerConfig config;
  Problems problems;
  read_fields(JsonDocument::of_value(std::move(keys), "test"), Fields::of(config), problems);
  throw_problems(problems);
  check(OptimizerConfig(FlatConfig(config)) == config, "FlatConfig lacks a key of {}",
        rule_name(config.rule));
  return config;
}
inline std::span<const StateInfo> states_of(const FlatConfig& config) {
  return mpt::states_of(OptimizerConfig(config).rule);
}
inline bool bounds_weights(const FlatConfig& config) {
  return mpt::bounds_weights(OptimizerConfig(config).rule);
}
// f(the arithmetic of this step)
template <class F>
void with_step(const OptimizerConfig& config, const StepScalars& scalars,
               const TensorScalars& tensor, const F& f) {
  with_rule(config.rule, [&]<class R>(std::type_identity<R>, const typename R::Config& keys) {
    R::Steps::with(R::step_of(keys, tensor),
                   [&]<class S>(std::type_identity<S>) { f(S::at(keys, scalars, tensor)); });
  });
}

inline Json m_plus_adam_keys() {
  return {{"rule", "m_plus_adam"}, {"lr_additive", 1e-3}, {"lr_multiplicative", 1e-3}};
}
inline Json adamw_keys() { return {{"rule", "adamw"}, {"lr_additive", 1e-3}}; }
inline Json madam_keys() { return {{"rule", "madam"}, {"lr_multiplicative", 1e-2}}; }

// Names of a tensor's states, if its moments are dense.
inline std::vector<std::string> state_names(const FlatConfig& config) {
  std::vector<std::string> names;
  for (const StateInfo& state : states_of(config)) names.emplace_back(state.name);
  return names;
}

struct Formats {
  DType weights = DType::kF32;
  DType state = DType::kF32;
  DType gradient = DType::kF32;
};
inline Format format_of(DType dtype) { return dtype == DType::kF32 ? Format::kF32 : Format::kBF16; }
inline WeightEncoding encoding_of(DType dtype) {
  return {.format = dtype == DType::kF32 ? WeightFormat::kF32 : WeightFormat::kBF16};
}

struct TargetShape {
  int64_t rows = 1, cols = 1;
  int rank = 2;               // 1: a norm, 2: a linear layer
  int64_t stride = 0;         // physical columns; 0: cols
  int64_t physical_rows = 0;  // 0: rows
  ParamKind matrix_kind = ParamKind::kLinear;
};

// Everything that determines the result of a run.
struct RunSetup {
  FlatConfig config;
  OptimizerOptions options{};
  WeightEncoding encoding{};  // of linear layers; others have its unscaled format
  DType gradient = DType::kF32;
  int threads = 1;
};

// Logical elements of a view, as stored.
inline std::vector<uint32_t> bits_of_tensor(const Tensor& t) {
  std::vector<uint32_t> bits;
  const int64_t size = size_of(t.dtype);
  for (int64_t r = 0; r < t.rows; ++r)
    for (int64_t c = 0; c < t.cols; ++c) {
      uint32_t element = 0;
      memcpy(&element, t.data + (r * t.stride + c) * size, size_t(size));
      bits.push_back(element);
    }
  return bits;
}

inline float element(const Tensor& t, int64_t row, int64_t col) {
  return t.dtype == DType::kF32 ? t.as<float>()[row * t.stride + col]
                                : to_float(t.as<bf16>()[row * t.stride + col]);
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
  static Partition whole(const std::vector<TargetShape>& shapes) {
    std::vector<PartitionedTensor> tensors;
    for (const TargetShape& shape : shapes)
      tensors.push_back({.rows = shape.rows, .cols = shape.cols});
    return {std::move(tensors), 1};
  }

 public:
  OptimizerRun(const FlatConfig& config, Formats formats, const std::vector<TargetShape>& shapes,
               int threads = 1)
      : OptimizerRun({.config = config,
                      .options = {.state = format_of(formats.state)},
                      .encoding = encoding_of(formats.weights),
                      .gradient = formats.gradient,
                      .threads = threads},
                     shapes) {}

  OptimizerRun(const RunSetup& setup, const std::vector<TargetShape>& shapes)
      : OptimizerRun(setup, shapes, make_cpu_device(setup.threads)) {}

  // On any device; encode(), fill_gradient(), everything() and decoded() can access its memory.
  OptimizerRun(const RunSetup& setup, const std::vector<TargetShape>& shapes,
               std::unique_ptr<Device> device)
      : OptimizerRun(setup, shapes, std::move(device),
                     {.partition = whole(shapes), .ranks = Communicator::single()}) {}

  // For one rank among several; both members must outlive this object.
  struct Share {
    const Partition& partition;
    Communicator& ranks;
  };
  OptimizerRun(const RunSetup& setup, const std::vector<TargetShape>& shapes,
               std::unique_ptr<Device> device, const Share& share)
      : device_(std::move(device)), allocator_(device_->make_allocator()), config_(setup.config) {
    int64_t most_rows = 1;
    for (size_t i = 0; i < shapes.size(); ++i) {
      add_target(setup, shapes[i], i);
      most_rows = std::max(most_rows, shapes[i].rows);
    }
    codec_ops_ = make_ops<CodecOps>(device_->stream(), {*allocator_, most_rows});
    optimizer_ = std::make_unique<Optimizer>(config_, setup.options, targets_,
                                             Optimizer::Place{.partition = share.partition,
                                                              .ranks = share.ranks,
                                                              .device = *device_,
                                                              .allocator = *allocator_});
  }

  // With the peak rates of the config.
  void step(int64_t t, float grad_scale = 1.0f) {
    optimizer_->step({.t = t, .grad_scale = grad_scale});
  }
  Optimizer& optimizer() { return *optimizer_; }
  [[nodiscard]] const std::vector<UpdateTarget>& targets() const { return targets_; }
  // Returns codes; the weights themselves if they are fp32 or bf16.
  [[nodiscard]] const Tensor& weights(size_t i = 0) const { return targets_[i].weights.codes; }
  [[nodiscard]] const Tensor& gradient(size_t i = 0) const { return targets_[i].gradient; }
  [[nodiscard]] Tensor state(const std::string& name) const {
    for (const NamedTensor& named : optimizer_->named_states())
      if (named.name == name) return named.tensor;
    throw LogicError("no state " + name);
  }

  // Sets weights of any format, by their first encoding.
  void encode(size_t i, const std::function<float(int64_t, int64_t)>& value) {
    const EncodedTensor& w = targets_[i].weights;
    const Tensor source = allocator_->tensor(kScratchMemory, DType::kF32, w.rows, w.cols);
    fill(source, value);
    codec_ops_->encode(source, w);
  }
  [[nodiscard]] std::vector<float> decoded(size_t i) {
    const EncodedTensor& w = targets_[i].weights;
    const Tensor values = allocator_->tensor(kScratchMemory, DType::kF32, w.rows, w.cols);
    codec_ops_->decode(w, values);
    const std::vector<std::byte> bytes = fetched(values);
    std::vector<float> floats(size_t(w.elements()));
    memcpy(floats.data(), bytes.data(), bytes.size());
    return floats;
  }
  void fill_gradient(size_t i, const std::function<float(int64_t, int64_t)>& value) {
    fill(targets_[i].gradient, value);
  }

  // Returns weights and every state, in one list: two runs are bit-identical if these are equal.
  [[nodiscard]] std::vector<uint32_t> everything() const {
    std::vector<uint32_t> all;
    for (const NamedTensor& named : tensors()) {
      std::vector<std::byte> bytes = fetched(named.tensor);
      const std::vector<uint32_t> bits = bits_of_tensor(packed(bytes, named.tensor));
      all.insert(all.end(), bits.begin(), bits.end());
    }
    return all;
  }
  // Returns the tensors of a checkpoint.
  [[nodiscard]] std::vector<NamedTensor> tensors() const {
    std::vector<NamedTensor> all;
    for (const UpdateTarget& target : targets_)
      for (NamedTensor& piece : target.weights.pieces(target.name)) all.push_back(std::move(piece));
    for (NamedTensor& named : optimizer_->named_states()) all.push_back(std::move(named));
    return all;
  }

 private:
  void add_target(const RunSetup& setup, const TargetShape& shape, size_t i) {
    WeightEncoding encoding = setup.encoding;
    if (shape.rank == 1 || shape.matrix_kind != ParamKind::kLinear)
      encoding = {.format = unscaled_format(encoding.format)};
    const int64_t physical_cols = shape.stride > 0 ? shape.stride : shape.cols;
    const int64_t physical_rows = shape.physical_rows > 0 ? shape.physical_rows : shape.rows;
    const EncodedShape encoded{shape.rows, shape.cols, physical_rows, physical_cols, shape.rank};
    targets_.push_back(
        {.name = fmt::format("w{}", i),
         .kind = shape.rank == 1 ? ParamKind::kNorm : shape.matrix_kind,
         .tensor_id = uint32_t(i + 1),
         .weights = allocate_encoded(encoding, encoded, kWeightMemory, *allocator_),
         .gradient = allocator_->tensor({"gradients"}, setup.gradient, physical_rows, physical_cols)
                         .row_range(0, shape.rows)
                         .columns(0, shape.cols)});
  }
  // Returns the elements of a tensor of the device, row after row.
  [[nodiscard]] std::vector<std::byte> fetched(const Tensor& tensor) const {
    std::vector<std::byte> bytes(size_t(tensor.elements() * size_of(tensor.dtype)));
    device_->download(tensor, bytes.data());
    return bytes;
  }
  static Tensor packed(std::vector<std::byte>& bytes, const Tensor& like) {
    return {bytes.data(), like.dtype, like.rows, like.cols, like.cols};
  }
  void fill(const Tensor& target, const std::function<float(int64_t, int64_t)>& value) {
    std::vector<std::byte> bytes(size_t(target.elements() * size_of(target.dtype)));
    fill_tensor(packed(bytes, target), value);
    device_->upload(bytes.data(), target);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Allocator> allocator_;
  OptimizerConfig config_;
  std::vector<UpdateTarget> targets_;
  std::unique_ptr<CodecOps> codec_ops_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace mpt::test
