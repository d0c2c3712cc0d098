#include "weights/loaded_model.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include <spdlog/spdlog.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_store.h"
#include "config/run_config_json.h"
#include "config/run_copies.h"
#include "config/run_device.h"
#include "core/check.h"
#include "core/io/run_paths.h"
#include "core/text/units.h"
#include "data/manifest.h"
#include "device/ops_registry.h"
#include "model/llama_ops.h"
#include "model/parameters.h"

namespace mpt {
namespace {

RunConfig config_of(const TrainState& state, const std::string& checkpoint) {
  RunConfig config =
      parse_run_config(JsonDocument::of_value(state.config, in_directory(checkpoint, kStateName)));
  config.data = located_data(config, checkpoint);
  return config;
}

SourceTexts source_of(const TrainState& state) {
  if (!state.extra.is_object()) return {};
  return SourceTexts::of_json(state.extra.value(kSourceTexts, nlohmann::json()));
}

DType storage_of(const PrecisionConfig& precision, ModelUse use) {
  if (use == ModelUse::kExportFp32 || use == ModelUse::kAsExported) return DType::kF32;
  if (use != ModelUse::kExport && use != ModelUse::kExportCodes)
    return activation_dtype(precision.compute);
  return precision.weights == WeightFormat::kF32 ? DType::kF32 : DType::kBF16;
}

WeightOptions weight_options(const PrecisionConfig& precision, ModelUse use) {
  const bool fp8 = use == ModelUse::kEvaluate && precision.compute == ComputeFormat::kFp8;
  const bool undecoded = fp8 || use == ModelUse::kExportCodes;
  const DType storage = storage_of(precision, use);
  return {.storage = storage,
          .gradient = storage,
          .linears = linear_encoding(precision),
          .linear_copies = undecoded ? LinearCopies::kNone : LinearCopies::kDecoded,
          .gradients = Gradients::kNone};
}

// Rounds like kExport for weights that are not stored in FP32.
void round_copies(const WeightStore& weights, Device& device) {
  const std::unique_ptr<LlamaOps> ops = make_ops<LlamaOps>(device.stream());
  for (int64_t i = 0; i < std::ssize(weights.specs()); ++i) ops->round_to_bf16(weights.compute(i));
}

}  // namespace

namespace {

// A run still in progress may remove a checkpoint while it is being verified.
std::optional<std::string> newest_good(FileSystem& fs, const std::string& directory) {
  const CheckpointStore store(fs, directory, {});
  for (int look = 1;; ++look) {
    const std::vector<CheckpointInfo> seen = store.list();
    if (const std::optional<std::string> found = store.latest_good()) return found;
    if (look == kMostLooks || seen == store.list()) return std::nullopt;
  }
}

}  // namespace

bool was_removed(FileSystem& fs, const std::string& checkpoint, const std::string& path) {
  return checkpoint != path && !fs.exists(in_directory(checkpoint, kStateName));
}

std::string find_checkpoint(FileSystem& fs, const std::string& path) {
  if (!fs.exists(path)) throw error("{}: no such checkpoint or run directory", path);
  if (!fs.is_directory(path))
    throw error(
        "{}: not a directory; expected a checkpoint (.../step_00001000) or the directory of a run",
        path);
  if (has_optional_file(fs, in_directory(path, kStateName))) {
    verify_checkpoint(fs, path);
    return path;
  }
  const std::string directory = directory_of_checkpoints(fs, path);
  if (const std::optional<std::string> latest = newest_good(fs, directory)) return *latest;
  const CheckpointStore store(fs, directory, {});
  if (store.list().empty())
    throw error("{}: neither a checkpoint (it has no {}) nor a run (it has no {}/step_...)", path,
                kStateName, kCheckpoints);
  throw error("{}: all of its {} checkpoints are corrupt", path, store.list().size());
}

nlohmann::json SavedWeights::json() const {
  return {{"path", checkpoint}, {"step", step}, {"hash", hash}};
}

void tell_what_is_left_out(const SavedWeights& saved) {
  const WeightRounding rounding = saved.config.optimizer.weight_rounding;
  if (residual_of(rounding))
    spdlog::info(
        "{}: taking the weights the run computes with and dropping what it keeps in addition "
        "(optimizer.weight_rounding = {})",
        saved.checkpoint, name_of(rounding));
}

SavedWeights find_saved_weights(FileSystem& fs, const std::string& path) {
  return with_checkpoint(
      fs, path, [&](const std::string& checkpoint) { return saved_weights_at(fs, checkpoint); });
}

SavedWeights saved_weights_at(FileSystem& fs, const std::string& checkpoint) {
  const TrainState state = read_checkpoint_state(fs, checkpoint);
  return {.checkpoint = checkpoint,
          .config = config_of(state, checkpoint),
          .step = state.step,
          .tokens = state.tokens,
          .hash = hash_file(fs, in_directory(checkpoint, kStateName)),
          .source = source_of(state)};
}

void require_memory(const PlanningAllocator& plan, const Device& device, const std::string& needs) {
  const int64_t needed = plan.use().total(), available = device.memory_bytes();
  if (needed > available)
    throw error("{} {}, {} is available", needs, format_bytes(double(needed)),
                format_bytes(double(available)));
}

LoadedModel load_verified_model(FileSystem& fs, const std::string& checkpoint,
                                const DeviceConfig& device, ModelUse use) {
  LoadedModel model{saved_weights_at(fs, checkpoint), make_device(device), nullptr, nullptr};
  const WeightOptions options = weight_options(model.config.precision, use);
  model.allocator = model.device->make_allocator();
  model.weights = make_within_memory(*model.device, *model.allocator,
                                     checkpoint + ": its weights need", [&](Allocator& allocator) {
                                       return std::make_unique<WeightStore>(
                                           llama_parameters(model.config.model), options,
                                           *model.device, allocator);
                                     });
  load_part_of_verified_checkpoint(fs, checkpoint, whole_parts(model.weights->named_tensors()),
                                   *model.device);
  model.weights->decode_weights();
  if (use == ModelUse::kAsExported && model.config.precision.weights != WeightFormat::kF32)
    round_copies(*model.weights, *model.device);
  spdlog::info("{}: step {}, {} parameters in {}", checkpoint, model.step,
               parameter_count(model.config.model), name_of(model.config.precision.weights));
  return model;
}

LoadedModel load_model(FileSystem& fs, const std::string& path, const DeviceConfig& device,
                       ModelUse use) {
  return with_checkpoint(fs, path, [&](const std::string& checkpoint) {
    return load_verified_model(fs, checkpoint, device, use);
  });
}

}  // namespace mpt
