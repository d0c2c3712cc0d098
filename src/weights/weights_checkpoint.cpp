#include "weights/weights_checkpoint.h"

#include <array>
#include <filesystem>
#include <string_view>

#include "checkpoint/checkpoint_store.h"
#include "config/model_differences.h"
#include "config/run_config_json.h"
#include "config/run_copies.h"
#include "core/check.h"
#include "core/io/hash.h"
#include "core/io/run_paths.h"
#include "core/json/json_parse.h"
#include "core/progress.h"
#include "core/text/utf8.h"
#include "model/parameters.h"
#include "model/weight_ema.h"
#include "weights/loaded_model.h"

namespace mpt {
namespace {

constexpr const char* kRunConfigFile = "config.json";
constexpr const char* kWeightsOnly = "weights_only";
constexpr std::array<std::string_view, 6> kWeightsFiles{kRunConfigFile,     kTokenizerFiles[0],
                                                        kTokenizerFiles[1], kTokenizerFiles[2],
                                                        kRunManifest,       kCheckpoints};

OutputDirectory output_of(const std::string& path, Overwrite overwrite) {
  return {.path = path,
          .what = "a checkpoint of weights",
          .files = {kWeightsFiles.begin(), kWeightsFiles.end()},
          .overwrite = overwrite};
}

// The name of the output's directory, or "weights" if a run cannot have that name.
std::string name_of_output(const std::string& output) {
  constexpr size_t kLongest = 200;
  const std::string name =
      std::filesystem::path(without_slashes(output)).lexically_normal().filename().string();
  const bool good = !name.empty() && !name.starts_with('.') && name.size() <= kLongest &&
                    valid_utf8_prefix(name) == name.size();
  return good ? name : "weights";
}

void require_precision_key(const std::string& assignment) {
  if (!assignment.starts_with("precision."))
    throw error(
        "--set {}: only keys of the precision section can be set here; a run that starts from "
        "these weights sets the others",
        assignment);
}

// If `base` already uses the format, keeps its options: blocks, scales.
PrecisionConfig plain_precision(WeightFormat weights, const PrecisionConfig& base) {
  const bool wide = weights == WeightFormat::kF32;
  const Format format = wide ? Format::kF32 : Format::kBF16;
  PrecisionConfig plain{.weights = weights,
                        .compute = wide ? ComputeFormat::kF32 : ComputeFormat::kBF16,
                        .optimizer_state = format,
                        .gradient = format};
  if (base.weights != weights) return plain;
  plain.fp8_block_size = base.fp8_block_size;
  plain.fp8_scale_mode = base.fp8_scale_mode;
  plain.nvfp4_scale_mode = base.nvfp4_scale_mode;
  return plain;
}

// Call before other fp8 requirements are checked.
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

void copy_file(FileSystem& fs, const std::string& from, const std::string& to) {
  if (!from.empty()) write_file_atomically(fs, to, bytes_of(fs.read_file(from)));
}

TrainState state_of(const WeightsCheckpoint& what) {
  return {.step = 0,
          .cursor = 0,
          .seed = what.config.seed,
          .config = resolved_json(what.config),
          .extra = {{kWeightsOnly, true},
                    {"weights_of", what.weights_of},
                    {kSourceTexts, what.source.json()}},
          .tokens = 0};
}

// The config without the keys that a run starting from these weights must set itself: how it
// trains.
Json config_to_start_from(const RunConfig& config) {
  Json json = resolved_json(config);
  for (const char* const section : {"optimizer", "schedule", "train"}) json.erase(section);
  json["batch"] = {{"seq_len", config.batch.seq_len}};
  return json;
}

void write_files(FileSystem& fs, const std::string& directory, const WeightsCheckpoint& what,
                 const WeightStore& weights, Device& device) {
  write_file_atomically(fs, in_directory(directory, kRunConfigFile),
                        bytes_of(json_text(config_to_start_from(what.config), 2) + "\n"));
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
  config.data.phases.clear();  // from a run of a different length than one step
  config.batch = base.batch;
  config.eval = base.eval;
  config.precision = plain_precision(wanted.weights, base.precision);
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
  const std::unique_ptr<Allocator> allocator = device.make_allocator();
  const std::string needs = fmt::format("{} weights in {} need", parameter_count(what.config.model),
                                        name_of(what.config.precision.weights));
  const WeightStore weights = make_within_memory(device, *allocator, needs, [&](Allocator& memory) {
    return WeightStore(llama_parameters(what.config.model), options, device, memory);
  });
  const WeightChanges changes = set_and_compare_weights(weights, source, device);
  write_directory(fs, output_of(what.output, what.overwrite), [&](const std::string& directory) {
    write_files(fs, directory, what, weights, device);
  });
  return changes;
}

bool holds_weights_only(const TrainState& state) {
  return state.extra.is_object() && state.extra.value(kWeightsOnly, nlohmann::json()) == true;
}

}  // namespace mpt
