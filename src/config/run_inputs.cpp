#include "config/run_inputs.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "core/check.h"
#include "core/io/file_system.h"
#include "core/io/run_paths.h"
#include "core/text.h"
#include "device/backends.h"

namespace mpt {

Backend backend_of(const DeviceConfig& config) {
  if (config.type == DeviceType::kAuto) return available_backend();
  return config.type == DeviceType::kCuda ? Backend::kCuda : Backend::kCpu;
}

void require_compute(const RunConfig& config, Backend backend) {
  if (backend == Backend::kCuda) return;
  for (const RunPhase& phase : run_phases(config))
    if (phase.config.precision.compute == ComputeFormat::kTf32)
      throw error(
          "precision.compute: tf32 is not available on the CPU, which device.type = {} selects "
          "here and which computes in fp32; set precision.compute to fp32, or train on a GPU",
          name_of(config.device.type));
}

namespace {

DeviceOptions device_options(const DeviceConfig& config) {
  return {.backend = backend_of(config),
          .threads = int(config.threads),
          .bf16_products = config.bf16_products,
          .cuda = {.index = int(config.gpu),
                   .graphs = config.cuda_graph ? CudaGraphs::kOn : CudaGraphs::kOff,
                   .tuning = config.autotune_gemms ? GemmTuning::kOn : GemmTuning::kOff,
                   .attention = config.cuda_attention,
                   .deterministic_attention = config.deterministic_attention
                                                  ? DeterministicAttention::kOn
                                                  : DeterministicAttention::kOff}};
}

}  // namespace

std::unique_ptr<Device> make_device(const DeviceConfig& config) {
  return make_device(device_options(config));
}
std::string why_unavailable(const DeviceConfig& config) {
  return why_unavailable(device_options(config));
}
std::unique_ptr<Device> make_planning_device(const DeviceConfig& config) {
  const DeviceOptions options = device_options(config);
  return why_unavailable(options).empty() ? make_device(options) : make_planning_device(options);
}
std::unique_ptr<Device> make_planning_gpu(const DeviceConfig& config) {
  if (!has_cuda()) return nullptr;
  CudaDeviceOptions options = device_options(config).cuda;
  if (options.attention == CudaAttention::kCudnn) options.attention = CudaAttention::kAuto;
  return make_cuda_planning_device(options);
}

// A CPU has memory to spare and casts slowly.
WeightCodes weight_codes_of(const DeviceConfig& config, Backend backend) {
  switch (config.fp8_weight_codes) {
    case Fp8WeightCodes::kAllLayers:
      return WeightCodes::kAllLayers;
    case Fp8WeightCodes::kOneLayer:
      return WeightCodes::kOneLayer;
    case Fp8WeightCodes::kAuto:
      break;
  }
  return backend == Backend::kCuda ? WeightCodes::kOneLayer : WeightCodes::kAllLayers;
}

std::string run_directory(const RunConfig& config) { return config.output_dir + "/" + config.name; }
std::string checkpoint_directory(const RunConfig& config) {
  return in_directory(run_directory(config), kCheckpoints);
}
std::string metrics_path(const RunConfig& config) {
  return run_directory(config) + "/metrics.jsonl";
}
std::string samples_path(const RunConfig& config) {
  return run_directory(config) + "/samples.jsonl";
}
bool has_metrics(FileSystem& fs, const RunConfig& config) {
  const std::string path = metrics_path(config);
  return fs.exists(path) && fs.file_size(path) > 0;
}

namespace {

// Of the tokenizer that the config names, or else of the first manifest: all data must have one.
std::optional<std::string> tokenizer_hash(const RunConfig& config) {
  if (const std::optional<Tokenizer> tokenizer = open_tokenizer(config)) return tokenizer->hash();
  const std::optional<FoundManifest> found = manifest_of(config.data);
  return found ? std::optional(found->manifest.tokenizer.hash) : std::nullopt;
}

std::string working_directory() { return std::filesystem::current_path().string(); }

void require_shards(const char* key, const std::vector<std::string>& patterns,
                    std::string_view split) {
  for (const std::string& pattern : patterns) {
    std::error_code ignored;  // names_a_file() tells
    if (std::filesystem::is_directory(pattern, ignored))
      throw error("{}: {} is a directory; name its shards, such as {}/{}_*.bin", key, pattern,
                  without_slashes(pattern), split);
    if (!pattern.empty() && !names_a_file(pattern))
      throw error(
          "{0}: {1}: no such file, and no file matches it as a glob (from {2}). `mpretrain "
          "tokenize` makes token shards, scripts/prepare_c4.sh those of C4; choose others with "
          "--set {0}=...",
          key, pattern, working_directory());
  }
}

void require_tokenizer(const std::string& path) {
  if (path.empty() || posix_file_system().exists(path)) return;
  throw error(
      "data.tokenizer: {}: no such file (from {}). `mpretrain tokenizer` makes one, and `mpretrain "
      "tokenize` and scripts/prepare_c4.sh put it beside the shards; choose another with --set "
      "data.tokenizer=..., or none with --set data.tokenizer=null",
      path, working_directory());
}

// Reads the tokenizer, so once for all corpora or sets.
SequenceOptions options_of(const RunConfig& config, Shuffle shuffle) {
  return {.seq_len = config.batch.seq_len,
          .pack = config.data.pack,
          .packing = config.data.packing,
          .attention = config.data.attention,
          .shuffle = shuffle,
          .seed = config.seed,
          .vocab_size = config.model.vocab_size,
          .tokenizer_hash = tokenizer_hash(config)};
}

std::shared_ptr<const SequenceSource> open(SequenceOptions options,
                                           const std::vector<std::string>& patterns) {
  options.patterns = patterns;
  return std::make_shared<SequenceSource>(options);
}

}  // namespace

std::optional<Tokenizer> open_tokenizer(const RunConfig& config) {
  if (config.data.tokenizer.empty()) return std::nullopt;
  require_tokenizer(config.data.tokenizer);
  Tokenizer tokenizer = Tokenizer::load(config.data.tokenizer);
  if (tokenizer.vocab_size() > config.model.vocab_size)
    throw error(
        "model.vocab_size is {}, but the tokenizer {} has {} pieces; the model needs at least as "
        "many",
        config.model.vocab_size, config.data.tokenizer, tokenizer.vocab_size());
  return tokenizer;
}

int64_t first_step_of(const MixturePhaseConfig& phase, int64_t steps) {
  return std::llround(phase.from * double(steps));
}

MixtureOrder mixture_order(const RunConfig& config) {
  std::map<std::string, double> weights;
  for (const CorpusConfig& corpus : config.data.train) weights[corpus.name] = corpus.weight;
  std::vector<MixtureSegment> segments{{0, shares_of(weights)}};
  for (const MixturePhaseConfig& phase : config.data.phases)
    segments.push_back({rows_of_steps(config, first_step_of(phase, total_steps(config))),
                        shares_of({phase.weights.begin(), phase.weights.end()})});
  return MixtureOrder(std::move(segments));
}

std::shared_ptr<const Mixture> open_training_data(const RunConfig& config, int64_t scanned_tokens) {
  require_training_data(config);
  for (const CorpusConfig& corpus : config.data.train)
    require_shards("data.train", corpus.files, "train");
  require_tokenizer(config.data.tokenizer);
  SequenceOptions options = options_of(config, config.data.shuffle ? Shuffle::kYes : Shuffle::kNo);
  options.scanned_tokens = scanned_tokens;
  std::vector<Corpus> corpora;
  for (const CorpusConfig& corpus : config.data.train)
    corpora.push_back({corpus.name, open(options, corpus.files)});
  return std::make_shared<Mixture>(std::move(corpora), mixture_order(config));
}

std::vector<ValidationSet> open_validation_data(const RunConfig& config) {
  if (config.data.validation.empty()) return {};
  for (const auto& [name, files] : config.data.validation)
    require_shards("data.validation", files, "val");
  require_tokenizer(config.data.tokenizer);
  const SequenceOptions options = options_of(config, Shuffle::kNo);
  std::vector<ValidationSet> sets;
  for (const auto& [name, files] : config.data.validation)
    sets.push_back({name, open(options, files)});
  return sets;
}

std::string text_of_shards_in_both(const DataConfig& data) {
  if (data.validation.empty()) return "";
  std::set<std::filesystem::path> trained;
  for (const CorpusConfig& corpus : data.train)
    for (const std::string& shard : expand_patterns(corpus.files))
      trained.insert(std::filesystem::weakly_canonical(shard));
  std::vector<std::string> both;
  for (const auto& [name, files] : data.validation)
    for (const std::string& shard : expand_patterns(files))
      if (trained.contains(std::filesystem::weakly_canonical(shard))) both.push_back(shard);
  if (both.empty()) return "";
  return fmt::format(
      "{} {} in data.train and in data.validation: the loss there is of text that is "
      "trained on",
      counted(std::ssize(both), "shard"), both.size() == 1 ? "is" : "are");
}

int64_t tokens_of(const std::vector<ValidationSet>& sets) {
  int64_t tokens = 0;
  for (const ValidationSet& set : sets) tokens += set.rows->tokens();
  return tokens;
}

namespace {

namespace stdfs = std::filesystem;

void write_if_different(FileSystem& fs, const std::string& to, const std::string& content) {
  if (!fs.exists(to) || fs.read_file(to) != content)
    write_file_atomically(fs, to, bytes_of(content));
}

// "/a" of run = "/a/runs/b" and place = "runs/b"; "" if the run lies elsewhere.
std::string directory_before(stdfs::path run, stdfs::path place) {
  for (; !place.empty(); place = place.parent_path(), run = run.parent_path())
    if (run.filename() != place.filename()) return "";
  return run.string();
}

// The directory the run was started in, as far as its path reveals it; else "".
std::string start_of_run(const RunConfig& config, const std::string& checkpoint) {
  const std::string run = run_of_checkpoint(checkpoint);
  const stdfs::path place = stdfs::path(run_directory(config)).lexically_normal();
  return run.empty() || place.is_absolute() ? "" : directory_before(run, place);
}

void locate(std::string& name, const std::string& start) {
  if (name.empty() || start.empty() || stdfs::path(name).is_absolute() || names_a_file(name))
    return;
  if (const std::string other = in_directory(start, name); names_a_file(other)) name = other;
}

}  // namespace

std::optional<FoundManifest> manifest_of(const DataConfig& data) {
  for (const std::string& pattern : data.all_files()) {
    const std::string path = in_directory(parent_directory(pattern), kManifestName);
    if (has_reachable_file(path)) return FoundManifest{Manifest::load(path), path};
  }
  return std::nullopt;
}

std::string tokenizer_of(const DataConfig& data) {
  if (!data.tokenizer.empty() && has_reachable_file(data.tokenizer)) return data.tokenizer;
  const std::optional<FoundManifest> found = manifest_of(data);
  if (!found) return "";
  const std::string beside =
      in_directory(parent_directory(found->path), found->manifest.tokenizer.file);
  return has_reachable_file(beside) ? beside : "";
}

void check_run_tokenizer(FileSystem& fs, const RunConfig& config, const std::string& checkpoint) {
  const std::string run = run_of_checkpoint(checkpoint), now = tokenizer_of(config.data);
  if (run.empty() || now.empty()) return;
  const std::string kept = tokenizer_in(run);
  if (kept.empty() || fs.read_file(kept) == read_tokenizer_file(now).bytes) return;
  throw error(
      "{}: cannot be resumed with the tokenizer {}: the run was started with a different one, {}. "
      "Restore data.tokenizer and the shards, or start a new run under another name",
      checkpoint, now, kept);
}

void keep_data_files(FileSystem& fs, const RunConfig& config) {
  const std::string directory = run_directory(config), tokenizer = tokenizer_of(config.data);
  if (!tokenizer.empty()) {
    const TokenizerFileContent file = read_tokenizer_file(tokenizer);
    write_if_different(fs, in_directory(directory, file.name()), file.bytes);
  }
  if (const auto found = manifest_of(config.data))
    write_if_different(fs, in_directory(directory, kRunManifest), fs.read_file(found->path));
}

void remove_data_files(FileSystem& fs, const RunConfig& config) {
  for (const char* const name : kTokenizerFiles)
    fs.remove_tree(in_directory(run_directory(config), name));
  fs.remove_tree(in_directory(run_directory(config), kRunManifest));
}

DataConfig located_data(const RunConfig& config, const std::string& checkpoint) {
  const std::string start = start_of_run(config, checkpoint);
  DataConfig data = config.data;
  for (CorpusConfig& corpus : data.train)
    for (std::string& name : corpus.files) locate(name, start);
  for (auto& [set, files] : data.validation)
    for (std::string& name : files) locate(name, start);
  locate(data.tokenizer, start);
  return data;
}

}  // namespace mpt
