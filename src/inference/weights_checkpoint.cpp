#include "inference/weights_checkpoint.h"

#include <array>
#include <filesystem>
#include <string_view>

#include "checkpoint/checkpoint_store.h"
#include "config/model_differences.h"
#include "config/run_config_json.h"
#include "config/run_inputs.h"
#include "core/check.h"
#include "core/io/hash.h"
#include "core/io/run_paths.h"
#include "core/json/json_parse.h"
#include "core/progress.h"
#include "core/text.h"
#include "inference/loaded_model.h"
#include "model/parameters.h"
#include "model/weight_ema.h"

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

// The name of the output's directory, if a run can have it.
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

// The format that `base` has already keeps its options: blocks, scales.
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

// Without what a run of these weights must be told: how it trains.
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
  config.data.phases.clear();  // of another length than one step
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

// --- convert -------------------------------------------------------------------------------------

namespace {

// Once its files are open, the run of a checkpoint may remove it.
template <class Source>
struct OpenedWeights {
  SavedWeights saved;
  std::unique_ptr<Source> source;
};
OpenedWeights<CheckpointWeights> opened_at(FileSystem& fs, const std::string& checkpoint,
                                           Device& device) {
  OpenedWeights<CheckpointWeights> opened{saved_weights_at(fs, checkpoint), nullptr};
  opened.source = std::make_unique<CheckpointWeights>(fs, checkpoint, opened.saved.config, device);
  return opened;
}

// A new checkpoint with model, data and tokenizer of a saved one.
WeightsCheckpoint checkpoint_like(FileSystem& fs, const SavedWeights& saved,
                                  const WeightsConfig& wanted, Overwrite overwrite) {
  const std::string run = run_of_checkpoint(saved.checkpoint),
                    manifest = in_directory(run, kRunManifest);
  const bool kept = !run.empty() && has_optional_file(fs, manifest);
  return {.output = wanted.output,
          .overwrite = overwrite,
          .config = config_of_weights(saved.config, wanted),
          .tokenizer = find_tokenizer(saved, "").path,
          .manifest = kept ? manifest : "",
          .weights_of = saved.json(),
          .source = saved.source};
}

}  // namespace

ConvertedCheckpoint convert_checkpoint(FileSystem& fs, const ConvertOptions& options) {
  check_weights_output(fs, options.wanted.output, options.overwrite);
  const auto device = make_device(DeviceConfig{.type = DeviceType::kCpu});
  const OpenedWeights<CheckpointWeights> opened = with_checkpoint(
      fs, options.checkpoint,
      [&](const std::string& checkpoint) { return opened_at(fs, checkpoint, *device); });
  const SavedWeights& saved = opened.saved;
  tell_what_is_left_out(saved);
  const WeightsCheckpoint made = checkpoint_like(fs, saved, options.wanted, options.overwrite);
  ConvertedCheckpoint result{
      .checkpoint = saved.checkpoint, .step = saved.step, .config = made.config, .changes = {}};
  result.changes = write_weights_checkpoint(fs, made, *opened.source, *device);
  return result;
}

// --- average -------------------------------------------------------------------------------------

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

// The EMA of weights of a checkpoint that holds one.
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
