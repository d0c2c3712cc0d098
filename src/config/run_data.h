// Opens the data that a run's config names: corpora in order, validation sets, tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "data/mixture.h"
#include "data/sequence_source.h"
#include "text/tokenizer.h"

namespace mpt {

// Returns nullopt if the config names no tokenizer. Throws Error if the tokenizer has more pieces
// than the model's vocabulary.
std::optional<Tokenizer> open_tokenizer(const RunConfig& config);
// The step after which a phase's weights apply; at least 0 and less than `steps`.
int64_t first_step_of(const MixturePhaseConfig& phase, int64_t steps);
// The order in which the config mixes its corpora, from the first row of the run.
MixtureOrder mixture_order(const RunConfig& config);
// Tokens of a corpus without a manifest that are compared with the vocabulary on opening: a tenth
// of a second of reading.
inline constexpr int64_t kScannedTokens = 100'000'000;
// Opens all corpora, in config order. Throws Error if the shards, the tokenizer and the model's
// vocabulary do not match.
std::shared_ptr<const Mixture> open_training_data(const RunConfig& config,
                                                  int64_t scanned_tokens = kScannedTokens);

struct ValidationSet {
  std::string name;  // "" if there is only one
  std::shared_ptr<const SequenceSource> rows;
};
// Returns an empty list if the config names no validation data. Never shuffled.
std::vector<ValidationSet> open_validation_data(const RunConfig& config);
// "2 shards are in data.train and in data.validation: ..."; "" if there are none.
std::string text_of_shards_in_both(const DataConfig& data);
// Tokens of all sets.
int64_t tokens_of(const std::vector<ValidationSet>& sets);

}  // namespace mpt
