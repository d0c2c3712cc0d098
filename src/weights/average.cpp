#include "weights/average.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_store.h"
#include "config/model_differences.h"
#include "config/run_device.h"
#include "model/weight_ema.h"
#include "weights/loaded_model.h"
#include "weights/opened_weights.h"
#include "weights/weights_checkpoint.h"

namespace mpt {
namespace {

class MeanWeights : public WeightSource {
 public:
  MeanWeights(const std::vector<OpenedWeights<CheckpointWeights>>& all, double decay,
              Device& device)
      : all_(all), decay_(decay), device_(device) {}
  void read(const ParamSpec& spec, int64_t first, const Tensor& target) override {
    const auto elements = static_cast<size_t>(target.elements());
    std::vector<double> sums(elements);
    std::vector<float> values(elements);
    double total = 0;
    for (const auto& one : all_) {
      one.source->read(spec, first, target);
      device_.synchronize();
      device_.download(target, reinterpret_cast<std::byte*>(values.data()));
      for (size_t i = 0; i < elements; ++i) sums[i] = sums[i] * decay_ + values[i];
      total = total * decay_ + 1;
    }
    for (size_t i = 0; i < elements; ++i) values[i] = static_cast<float>(sums[i] / total);
    device_.upload(reinterpret_cast<const std::byte*>(values.data()), target);
  }
  bool copy(const ParamSpec&, const EncodedTensor&) override { return false; }

 private:
  const std::vector<OpenedWeights<CheckpointWeights>>& all_;
  double decay_;
  Device& device_;
};

// The weight EMA stored in a checkpoint.
class EmaWeights : public WeightSource {
 public:
  EmaWeights(FileSystem& fs, const std::string& checkpoint, Device& device)
      : stored_(fs, checkpoint, read_checkpoint_record(fs, checkpoint).files), device_(device) {}
  void read(const ParamSpec& spec, int64_t first, const Tensor& target) override {
    const Tensor shape{nullptr, DType::kF32, spec.rows, spec.cols, spec.cols};
    staging_.resize(static_cast<size_t>(target.elements() * size_of(DType::kF32)));
    StoredTensors::read(stored_.at(whole_part({ema_name(spec.name), shape, spec.rank()})),
                        first * spec.cols, staging_);
    device_.upload(staging_.data(), target);
  }
  bool copy(const ParamSpec&, const EncodedTensor&) override { return false; }

 private:
  StoredTensors stored_;
  Device& device_;
  std::vector<std::byte> staging_;
};

// The newest checkpoints of a run.
std::vector<std::string> newest_of(FileSystem& fs, const std::string& run, int64_t count) {
  std::vector<CheckpointInfo> all =
      CheckpointStore(fs, directory_of_checkpoints(fs, without_slashes(run)), {}).list();
  if (std::ssize(all) < count)
    throw error("{}: has {} checkpoints; --last {} needs as many", run, all.size(), count);
  std::vector<std::string> paths;
  for (const CheckpointInfo& info : std::span(all).last(static_cast<size_t>(count)))
    paths.push_back(info.path);
  return paths;
}

std::vector<OpenedWeights<CheckpointWeights>> opened_to_average(FileSystem& fs,
                                                                const AverageOptions& options,
                                                                Device& device) {
  const auto open = [&](const std::string& checkpoint) {
    return opened_at(fs, checkpoint, device);
  };
  if (!options.last) {
    std::vector<OpenedWeights<CheckpointWeights>> all;
    for (const std::string& path : options.checkpoints)
      all.push_back(with_checkpoint(fs, path, open));
    return all;
  }
  const std::string& run = options.checkpoints.front();
  return with_checkpoints(
      fs, run, [&] { return newest_of(fs, run, *options.last); },
      [&](const std::vector<std::string>& found) {
        std::vector<OpenedWeights<CheckpointWeights>> all;
        for (const std::string& checkpoint : found)
          all.push_back(open(find_checkpoint(fs, checkpoint)));
        return all;
      });
}

void check_average(const AverageOptions& options) {
  if (options.last && options.checkpoints.size() != 1)
    throw error("--last is for the checkpoints of one run, {} are given",
                options.checkpoints.size());
  if (!options.last && options.checkpoints.size() < 2)
    throw error("a mean needs two checkpoints or more; give them, or a run with --last N");
}

void require_one_model(const SavedWeights& first, const SavedWeights& other) {
  const std::vector<ModelDifference> found =
      model_differences(first.config.model, other.config.model);
  if (!found.empty())
    throw error("{} has another model than {}: {}", other.checkpoint, first.checkpoint,
                texts_of(found));
}

AveragedCheckpoints write_ema(FileSystem& fs, const AverageOptions& options) {
  if (options.checkpoints.size() != 1 || options.last || options.decay != 1)
    throw error(
        "--ema takes one checkpoint, or a run for its newest one; without --last and --decay");
  const auto device = make_device(DeviceConfig{.type = DeviceType::kCpu});
  const OpenedWeights<EmaWeights> opened =
      with_checkpoint(fs, options.checkpoints.front(), [&](const std::string& checkpoint) {
        const SavedWeights saved = saved_weights_at(fs, checkpoint);
        if (saved.config.train.ema_decay == 0)
          throw error("{} holds no EMA of weights: its run had train.ema_decay = 0", checkpoint);
        return OpenedWeights<EmaWeights>{saved,
                                         std::make_unique<EmaWeights>(fs, checkpoint, *device)};
      });
  const SavedWeights& saved = opened.saved;
  WeightsCheckpoint made = checkpoint_like(fs, saved, options.wanted, options.overwrite);
  made.weights_of = {{"ema_of", saved.json()}, {"decay", saved.config.train.ema_decay}};
  return {.checkpoints = {saved.checkpoint},
          .config = made.config,
          .changes = write_weights_checkpoint(fs, made, *opened.source, *device)};
}

}  // namespace

AveragedCheckpoints average_checkpoints(FileSystem& fs, const AverageOptions& options) {
  check_weights_output(fs, options.wanted.output, options.overwrite);
  if (options.ema) return write_ema(fs, options);
  check_average(options);
  const auto device = make_device(DeviceConfig{.type = DeviceType::kCpu});
  const std::vector<OpenedWeights<CheckpointWeights>> all = opened_to_average(fs, options, *device);
  for (const auto& one : all) require_one_model(all.front().saved, one.saved);
  tell_what_is_left_out(all.front().saved);
  WeightsCheckpoint made = checkpoint_like(fs, all.back().saved, options.wanted, options.overwrite);
  made.weights_of = {{"mean_of", nlohmann::json::array()}, {"decay", options.decay}};
  AveragedCheckpoints result{.checkpoints = {}, .config = made.config, .changes = {}};
  for (const auto& one : all) {
    made.weights_of.at("mean_of").push_back(one.saved.json());
    result.checkpoints.push_back(one.saved.checkpoint);
  }
  MeanWeights mean(all, options.decay, *device);
  result.changes = write_weights_checkpoint(fs, made, mean, *device);
  return result;
}

}  // namespace mpt
