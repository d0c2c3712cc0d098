#include "config/run_data.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "config/run_copies.h"
#include "core/check.h"
#include "core/io/file_patterns.h"
#include "core/io/file_system.h"
#include "core/io/run_paths.h"
#include "core/text/counted.h"
#include "device/backends.h"

namespace mpt {
namespace {

// Hash of the tokenizer that the config names, or else of the first manifest's: all data must have
// the same one.
std::optional<std::string> tokenizer_hash(const RunConfig& config) {
  if (const std::optional<Tokenizer> tokenizer = open_tokenizer(config)) return tokenizer->hash();
  const std::optional<FoundManifest> found = manifest_of(config.data);
  return found ? std::optional(found->manifest.tokenizer.hash) : std::nullopt;
}

std::string working_directory() { return std::filesystem::current_path().string(); }

void require_shards(const char* key, const std::vector<std::string>& patterns,
                    std::string_view split) {
  for (const std::string& pattern : patterns) {
    std::error_code ignored;  // names_a_file() reports it
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
      "tokenize` and scripts/prepare_c4.sh put it next to the shards; choose another with --set "
      "data.tokenizer=..., or none with --set data.tokenizer=null",
      path, working_directory());
}

// Reads the tokenizer, so it is called once for all corpora or sets.
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

}  // namespace mpt
