#include "train/resume/phase_entry.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/ranges.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_parts.h"
#include "checkpoint/checkpoint_state.h"
#include "core/bf16.h"
#include "weights/weight_source.h"

namespace mpt {
namespace {

// Returns "m" of "m/layers.0.attention.o".
std::string state_of(const TensorPart& part) {
  return part.whole.name.substr(0, part.whole.name.find('/'));
}

bool has_same_rule(const OptimizerConfig& a, const OptimizerConfig& b) {
  const auto rank_of = [](const OptimizerConfig& config) {
    const auto projection = projection_options(config.rule);
    return projection ? projection->rank : 0;
  };
  return rule_name(a.rule) == rule_name(b.rule) && rank_of(a) == rank_of(b);
}

bool has_same_weights(const PrecisionConfig& a, const PrecisionConfig& b) {
  return linear_encoding(a) == linear_encoding(b);
}

bool has_same_gemms(const PrecisionConfig& a, PrecisionConfig b) {
  b.weights = a.weights;
  b.optimizer_state = a.optimizer_state;
  b.gradient = a.gradient;
  b.state_rounding = a.state_rounding;
  b.state_update = a.state_update;
  b.fp8_block_size = a.fp8_block_size;
  b.fp8_scale_mode = a.fp8_scale_mode;
  b.nvfp4_scale_mode = a.nvfp4_scale_mode;
  return a == b;
}

float read_float(DType type, const std::byte* at) {
  if (type == DType::kF32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  bf16 value;
  std::memcpy(&value, at, sizeof value);
  return to_float(value);
}
void write_float(float value, DType type, std::byte* at) {
  if (type == DType::kF32) {
    std::memcpy(at, &value, sizeof value);
    return;
  }
  const bf16 rounded = from_float<bf16>(value);
  std::memcpy(at, &rounded, sizeof rounded);
}
bool is_real(DType type) { return type == DType::kF32 || type == DType::kBF16; }

// Loads the states of a checkpoint's optimizer that a phase keeps.
class StateLoader {
 public:
  StateLoader(FileSystem& fs, const std::string& checkpoint, Device& device)
      : fs_(fs),
        checkpoint_(checkpoint),
        device_(device),
        stored_(fs, checkpoint, read_checkpoint_record(fs, checkpoint).files) {}

  // Returns whether the checkpoint has the tensor in this shape.
  bool load(const TensorPart& part) {
    const auto found = stored_.tensors().find(part.whole.name);
    if (found == stored_.tensors().end() || found->second.info.shape != part.whole.shape())
      return false;
    const StoredTensors::Stored& stored = found->second;
    const DType type = part.whole.tensor.dtype;
    if (stored.info.type == stored_type(type)) {
      as_they_are_.push_back(part);
      return true;
    }
    for (const DType there : {DType::kF32, DType::kBF16})
      if (is_real(type) && stored.info.type == stored_type(there)) {
        convert(stored, there, part);
        return true;
      }
    return false;
  }
  void finish() {
    load_part_of_verified_checkpoint(fs_, checkpoint_, as_they_are_, device_);
    device_.synchronize();
  }

 private:
  void convert(const StoredTensors::Stored& stored, DType there, const TensorPart& part) {
    const DType type = part.whole.tensor.dtype;
    int64_t first = part.first;
    for (const Tensor& block : blocks_of(part)) {
      const int64_t count = block.elements();
      from_.resize(static_cast<size_t>(count * size_of(there)));
      to_.resize(static_cast<size_t>(count * size_of(type)));
      StoredTensors::read(stored, first, from_);
      for (int64_t i = 0; i < count; ++i)
        write_float(read_float(there, from_.data() + i * size_of(there)), type,
                    to_.data() + i * size_of(type));
      device_.upload(to_.data(), block);
      first += count;
    }
  }

  FileSystem& fs_;
  const std::string& checkpoint_;
  Device& device_;
  StoredTensors stored_;
  std::vector<TensorPart> as_they_are_;
  std::vector<std::byte> from_, to_;
};

// For a rollback to the beginning of a phase, which finds the states left by its steps.
void forget_states(TrainingModel& model, Device& device) {
  std::vector<std::byte> zeros;
  for (const TensorPart& part : model.optimizer.parts_to_load())
    for (const Tensor& block : blocks_of(part)) {
      zeros.resize(std::max(zeros.size(), size_t(block.elements() * size_of(block.dtype))));
      device.upload(zeros.data(), block);
    }
  model.llama.reset_scales();
}

}  // namespace

PhaseEntry enter_phase(FileSystem& fs, const std::string& checkpoint, const RunConfig& before,
                       const RunConfig& config, TrainingModel& model, Device& device) {
  forget_states(model, device);
  CheckpointWeights weights(fs, checkpoint, before, device);
  set_weights(model.weights, weights, device);
  model.optimizer.weights_initialized();

  const bool same_weights = has_same_weights(before.precision, config.precision);
  const auto residual = residual_of(config.optimizer.weight_rounding);
  const bool keeps_residuals =
      same_weights && before.optimizer.weight_rounding == config.optimizer.weight_rounding;
  PhaseEntry entry{.keeps_moments = has_same_rule(before.optimizer, config.optimizer)};
  StateLoader states(fs, checkpoint, device);
  std::set<std::string> kept, begun;
  for (const TensorPart& part : model.optimizer.parts_to_load()) {
    const std::string state = state_of(part);
    const bool keeps = residual && state == residual->name ? keeps_residuals : entry.keeps_moments;
    (keeps && states.load(part) ? kept : begun).insert(state);
  }
  if (has_same_gemms(before.precision, config.precision))
    for (const TensorPart& part : whole_parts(model.llama.named_states()))
      (states.load(part) ? kept : begun).insert("FP8 scales");
  if (model.ema)
    for (const TensorPart& part : model.ema->parts())
      if (!states.load(part))
        throw error("{}: has no {}, which runs with train.ema_decay keep", checkpoint,
                    part.whole.name);
  states.finish();
  model.weights_changed();
  model.optimizer.states_loaded();

  const auto list = [](const char* what, const std::set<std::string>& names) {
    return names.empty() ? "" : fmt::format("; {} {}", what, fmt::join(names, ", "));
  };
  entry.text = fmt::format(
      "weights {}{}{}{}", name_of(before.precision.weights),
      same_weights ? " as they are" : fmt::format(" to {}", name_of(config.precision.weights)),
      list("kept", kept), list("new", begun));
  return entry;
}

}  // namespace mpt
