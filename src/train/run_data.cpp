#include "train/run_data.h"

#include <filesystem>

#include "core/check.h"
#include "data/file_list.h"

namespace mpt {
namespace {

std::optional<std::string> tokenizer_hash(const RunConfig& config) {
  const std::optional<Tokenizer> tokenizer = open_tokenizer(config);
  return tokenizer ? std::optional(tokenizer->hash()) : std::nullopt;
}

std::string working_directory() { return std::filesystem::current_path().string(); }

void require_shards(const char* key, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns)
    if (!pattern.empty() && !names_a_file(pattern))
      throw error(
          "{0}: {1}: no such file, and no file matches it as a pattern (from {2}). `mpretrain tokenize` "
          "makes "
          "token shards, scripts/prepare_c4.sh those of C4; --set {0}=... names others",
          key, pattern, working_directory());
}

void require_tokenizer(const std::string& path) {
  if (path.empty() || std::filesystem::exists(path)) return;
  throw error(
      "data.tokenizer: {}: no such file (from {}). `mpretrain tokenizer` makes one, and `mpretrain tokenize` "
      "and scripts/prepare_c4.sh put it beside the shards; --set data.tokenizer=... names another, "
      "--set data.tokenizer=null none",
      path, working_directory());
}

std::shared_ptr<const SequenceSource> open(const RunConfig& config, const std::vector<std::string>& patterns,
                                           Shuffle shuffle) {
  return std::make_shared<SequenceSource>(SequenceOptions{.patterns = patterns,
                                                          .seq_len = config.batch.seq_len,
                                                          .pack = config.data.pack,
                                                          .shuffle = shuffle,
                                                          .seed = config.seed,
                                                          .vocab_size = config.model.vocab_size,
                                                          .tokenizer_hash = tokenizer_hash(config)});
}

}  // namespace

std::optional<Tokenizer> open_tokenizer(const RunConfig& config) {
  if (config.data.tokenizer.empty()) return std::nullopt;
  require_tokenizer(config.data.tokenizer);
  Tokenizer tokenizer = Tokenizer::load(config.data.tokenizer);
  if (tokenizer.vocab_size() > config.model.vocab_size)
    throw error(
        "model.vocab_size is {}, but the tokenizer {} has {} pieces; the model needs at least as many",
        config.model.vocab_size, config.data.tokenizer, tokenizer.vocab_size());
  return tokenizer;
}

std::shared_ptr<const SequenceSource> open_training_data(const RunConfig& config) {
  require_training_data(config);
  require_shards("data.train", config.data.train);
  require_tokenizer(config.data.tokenizer);
  return open(config, config.data.train, config.data.shuffle ? Shuffle::kYes : Shuffle::kNo);
}

std::shared_ptr<const SequenceSource> open_validation_data(const RunConfig& config) {
  if (config.data.validation.empty()) return nullptr;
  require_shards("data.validation", config.data.validation);
  require_tokenizer(config.data.tokenizer);
  return open(config, config.data.validation, Shuffle::kNo);
}

}  // namespace mpt
