// The training and validation sequences that a run's config names.
#pragma once

#include <memory>
#include <optional>

#include "data/sequence_source.h"
#include "data/tokenizer.h"
#include "train/run_config.h"

namespace mpt {

// None if the config names none. Throws Error if it has more pieces than the model.
std::optional<Tokenizer> open_tokenizer(const RunConfig& config);
// Throws Error if the shards, the tokenizer and the model's vocabulary do not go together.
std::shared_ptr<const SequenceSource> open_training_data(const RunConfig& config);
// Null if the config names no validation data. Never shuffled.
std::shared_ptr<const SequenceSource> open_validation_data(const RunConfig& config);

}  // namespace mpt
