#include "inference/weights_checkpoint.h"

#include <array>
#include <filesystem>
#include <string_view>

#include "checkpoint/checkpoint_store.h"
#include "config/run_inputs.h"
#include "core/check.h"
#include "core/io/hash.h"
#include "core/progress.h"
#include "inference/loaded_model.h"
#include "model/parameters.h"

namespace mpt {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kWeightsOnly = "weights_only";
constexpr std::array<std::string_view, 6> kFiles{
    kConfig,      kTokenizerFiles[0], kTokenizerFiles[1], kTokenizerFiles[2],
    kRunManifest, kCheckpoints};

OutputDirectory output_of(const std::string& path, Overwrite overwrite) {
  return {.path = path,
          .what = "a checkpoint of weights",
          .files = {kFiles.begin(), kFiles.end()},
          .overwrite = overwrite};
}

// The name of the output's directory, if a run can have it.
std::string name_of_output(const std::string& output) {
  constexpr size_t kLongest = 200;
  const std::string name =
      std::filesystem::path(without_slashes(output)).lexically_normal().filename().string();
  const bool good = !name.empty() && !name.starts_with('.') && name.size() <= kLongest;
  return good ? name : "weights";
}

void require_precision_key(const std::string& assignment) {
  if (!assignment.starts_with("precision."))
    throw error(
        "--set {}: only keys of the precision section can be set here; a run that starts from "
        "these weights sets the others",
        assignment);
}

PrecisionConfig plain_precision(WeightFormat weights) {
  const bool wide = weights == WeightFormat::kF32;
  const Format format = wide ? Format::kF32 : Format::kBF16;
  return {.weights = weights,
          .compute = wide ? ComputeFormat::kF32 : ComputeFormat::kBF16,
          .optimizer_state = format,
          .gradient = format};
}

// Before other demands of fp8 are made.
void require_no_scales(const JsonDocument& document) {
  const Json& precision = document.root().at("precision");
  if (precision.is_object() && precision.value("compute", Json()) == "fp8")
    throw error(
        "--set precision.compute=fp8: a checkpoint of weights has no scales of FP8 GEMMs; "
        "accepted: bf16, fp32. A run that starts from it (train.init_from) can compute in fp8");
}

void require_format(const RunConfig& config, WeightFormat weights) {
  if (config.precision.weights != weights)
    throw error("--set precision.weights={}: --weights says {}; give the format there",
                name_of(config.precision.weights), name_of(weights));
}

void require_memory(const RunConfig& config, const WeightOptions& options, Device& device) {
  PlanningAllocator plan(device.alignment());
  const WeightStore weights(llama_parameters(config.model), options, device, plan);
  const int64_t needed = plan.use().total();
  if (needed > device.memory_bytes())
    throw error("{} weights in {} need {}, {} is available", parameter_count(config.model),
                name_of(config.precision.weights), format_bytes(double(needed)),
                format_bytes(double(device.memory_bytes())));
}

void copy_file(FileSystem& fs, const std::string& from, const std::string& to) {
  if (!from.empty()) write_file_atomically(fs, to, bytes_of(fs.read_file(from)));
}

TrainState state_of(const WeightsCheckpoint& what) {
  return {.step = 0,
          .cursor = 0,
          .seed = what.config.seed,
          .config = resolved_json(what.config),
          .extra = {{kWeightsOnly, true}, {"weights_of", what.weights_of}},
          .tokens = 0};
}

void write_files(FileSystem& fs, const std::string& directory, const WeightsCheckpoint& what,
                 const WeightStore& weights, Device& device) {
  write_file_atomically(fs, in_directory(directory, kConfig),
                        bytes_of(resolved_json(what.config).dump(2) + "\n"));
  if (!what.tokenizer.empty()) {
    const TokenizerFileContent file = read_tokenizer_file(what.tokenizer);
    write_file_atomically(fs, in_directory(directory, file.name()), bytes_of(file.bytes));
  }
  copy_file(fs, what.manifest, in_directory(directory, kRunManifest));
  CheckpointStore store(fs, in_directory(directory, kCheckpoints), {});
  store.save(state_of(what), weights.named_tensors(), device);
}

}  // namespace

RunConfig config_of_weights(const RunConfig& base, const WeightsConfig& wanted) {
  RunConfig config;
  config.name = name_of_output(wanted.output);
  config.seed = base.seed;
  config.model = base.model;
  config.data = base.data;
  config.batch = base.batch;
  config.eval = base.eval;
  config.precision = plain_precision(wanted.weights);
  config.train.steps = 1;
  JsonDocument document = JsonDocument::of_value(resolved_json(config), "the model's config");
  for (const std::string& assignment : wanted.overrides) {
    require_precision_key(assignment);
    document.set(assignment);
  }
  require_no_scales(document);
  config = parse_run_config(std::move(document));
  require_format(config, wanted.weights);
  return config;
}

void check_weights_output(FileSystem& fs, const std::string& output, Overwrite overwrite) {
  check_output(fs, output_of(output, overwrite));
}

WeightChanges write_weights_checkpoint(FileSystem& fs, const WeightsCheckpoint& what,
                                       WeightSource& source, Device& device) {
  const WeightOptions options = stored_weights(what.config.precision);
  require_memory(what.config, options, device);
  const std::unique_ptr<Allocator> allocator = device.make_allocator();
  const WeightStore weights(llama_parameters(what.config.model), options, device, *allocator);
  const WeightChanges changes = set_and_compare_weights(weights, source, device);
  write_directory(fs, output_of(what.output, what.overwrite), [&](const std::string& directory) {
    write_files(fs, directory, what, weights, device);
  });
  return changes;
}

bool holds_weights_only(const TrainState& state) {
  return state.extra.is_object() && state.extra.value(kWeightsOnly, nlohmann::json()) == true;
}

// --- convert -------------------------------------------------------------------------------------

ConvertedCheckpoint convert_checkpoint(FileSystem& fs, const ConvertOptions& options) {
  const std::string& output = options.wanted.output;
  check_weights_output(fs, output, options.overwrite);
  const SavedWeights saved = find_saved_weights(fs, options.checkpoint);
  const std::string run = run_of_checkpoint(saved.checkpoint),
                    manifest = in_directory(run, kRunManifest),
                    tokenizer = find_tokenizer(saved.config, "", saved.checkpoint).path;
  const bool kept = !run.empty() && fs.exists(manifest);
  ConvertedCheckpoint result{.checkpoint = saved.checkpoint,
                             .step = saved.step,
                             .config = config_of_weights(saved.config, options.wanted),
                             .changes = {}};
  const auto device = make_device(DeviceConfig{.type = DeviceType::kCpu});
  CheckpointWeights source(fs, saved.checkpoint, saved.config, *device);
  result.changes = write_weights_checkpoint(fs,
                                            {.output = output,
                                             .overwrite = options.overwrite,
                                             .config = result.config,
                                             .tokenizer = tokenizer,
                                             .manifest = kept ? manifest : "",
                                             .weights_of = saved.json()},
                                            source, *device);
  return result;
}

}  // namespace mpt
