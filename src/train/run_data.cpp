#include "train/run_data.h"

#include "core/check.h"
#include "data/tokenizer.h"

namespace mpt {
namespace {

// Hash of the configured tokenizer, whose pieces must fit the model.
std::optional<std::string> tokenizer_hash(const RunConfig& config) {
  if (config.data.tokenizer.empty()) return std::nullopt;
  const Tokenizer tokenizer = Tokenizer::load(config.data.tokenizer);
  if (tokenizer.vocab_size() > config.model.vocab_size)
    throw error(
        "model.vocab_size is {}, but the tokenizer {} has {} pieces; the model needs at least as many",
        config.model.vocab_size, config.data.tokenizer, tokenizer.vocab_size());
  return tokenizer.hash();
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

std::shared_ptr<const SequenceSource> open_training_data(const RunConfig& config) {
  require_training_data(config);
  return open(config, config.data.train, config.data.shuffle ? Shuffle::kYes : Shuffle::kNo);
}

std::shared_ptr<const SequenceSource> open_validation_data(const RunConfig& config) {
  if (config.data.validation.empty()) return nullptr;
  return open(config, config.data.validation, Shuffle::kNo);
}

}  // namespace mpt
