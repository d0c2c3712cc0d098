#include "inference/loaded_model.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include <spdlog/spdlog.h>

#include "checkpoint/checkpoint_store.h"
#include "config/run_config_json.h"
#include "config/run_inputs.h"
#include "core/check.h"
#include "core/io/run_paths.h"
#include "core/progress.h"
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

// As kExport writes what is not stored in FP32.
void round_copies(const WeightStore& weights, Device& device) {
  const std::unique_ptr<LlamaOps> ops = make_ops<LlamaOps>(device.stream());
  for (int64_t i = 0; i < std::ssize(weights.specs()); ++i) ops->round_to_bf16(weights.compute(i));
}

}  // namespace

namespace {

// A run that goes on may remove a checkpoint while it is verified.
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
  throw error("{}: none of its {} checkpoints is good", path, store.list().size());
}

nlohmann::json SavedWeights::json() const {
  return {{"path", checkpoint}, {"step", step}, {"hash", hash}};
}

void tell_what_is_left_out(const SavedWeights& saved) {
  const WeightRounding rounding = saved.config.optimizer.weight_rounding;
  if (residual_of(rounding))
    spdlog::info(
        "{}: the weights that the run computes with are taken; what it keeps beside them "
        "(optimizer.weight_rounding = {}) is left out",
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

namespace {

// The manifest kept by the run, else the one beside its data.
std::optional<Manifest> manifest_of_model(const RunConfig& config, const std::string& run) {
  const std::string kept = in_directory(run, kRunManifest);
  if (!run.empty() && has_optional_file(posix_file_system(), kept)) return Manifest::load(kept);
  std::optional<FoundManifest> found = manifest_of(config.data);
  return found ? std::optional(std::move(found->manifest)) : std::nullopt;
}

// `run`: its directory, "" if it has none yet.
TokenizerFile tokenizer_of_run(const RunConfig& config, const std::string& run,
                               const SourceTexts& source, const std::string& given) {
  TokenizerFile file{.path = "", .prepend_bos = source.begin_with_bos, .data_hash = ""};
  if (const std::optional<Manifest> manifest = manifest_of_model(config, run)) {
    const nlohmann::json bos = manifest->options.value("prepend_bos", nlohmann::json(false));
    file.prepend_bos = bos.is_boolean() && bos.get<bool>();
    file.data_hash = manifest->tokenizer.hash;
  }
  const std::string kept = run.empty() ? "" : tokenizer_in(run);
  if (!given.empty())
    file.path = given;
  else if (!kept.empty())
    file.path = kept;
  else
    file.path = tokenizer_of(config.data);
  return file;
}

}  // namespace

TokenizerFile find_tokenizer(const SavedWeights& model, const std::string& given) {
  return tokenizer_of_run(model.config, run_of_checkpoint(model.checkpoint), model.source, given);
}

TokenizerFile find_tokenizer(const RunConfig& config, const std::string& given) {
  return tokenizer_of_run(config, "", {}, given);
}

std::string missing_tokenizer(const RunConfig& config) {
  const std::string named =
      config.data.tokenizer.empty()
          ? "data.tokenizer of its config is not set"
          : fmt::format("data.tokenizer of its config, '{}', was not found (from {})",
                        config.data.tokenizer, std::filesystem::current_path().string());
  return fmt::format(
      "the model's tokenizer is unknown: its run directory has none of {}, {}, and there is no {} "
      "beside its data; name it with --tokenizer",
      fmt::join(kTokenizerFiles, ", "), named, kManifestName);
}

Tokenizer load_tokenizer(const RunConfig& config, const TokenizerFile& file) {
  if (file.path.empty()) throw error("{}", missing_tokenizer(config));
  Tokenizer tokenizer = Tokenizer::load(file.path);
  if (tokenizer.vocab_size() > config.model.vocab_size)
    throw error(
        "{} has {} pieces, the model has {}; it is not the tokenizer that the model was trained "
        "with",
        file.path, tokenizer.vocab_size(), config.model.vocab_size);
  if (!file.data_hash.empty() && tokenizer.hash() != file.data_hash)
    spdlog::warn("{} is not the tokenizer of the shards named by the run's config", file.path);
  return tokenizer;
}

}  // namespace mpt
