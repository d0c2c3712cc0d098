// Training data of a run resumed from a checkpoint: rows already read are not read again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_state.h"
#include "config/run_config.h"
#include "config/run_data.h"
#include "data/mixture.h"

namespace mpt {

// The shards of corpora or validation sets, by name.
using DataContents = std::map<std::string, std::vector<ShardContent>>;

DataContents contents_of(const Mixture& training_data);
DataContents contents_of(const std::vector<ValidationSet>& sets);

// Order of a single corpus without a name.
MixtureOrder unnamed_order();

// Data of the saved run, as recorded in a checkpoint. A corpus that had no name and has one now,
// with the same list of shards, appears under that name.
struct FormerData {
  std::map<std::string, int64_t> tokens{};  // of every corpus the run has had
  DataContents shards{};                    // of these, as far as the checkpoint records them
  DataContents validation{};                // of the validation sets, likewise
  MixtureOrder order = unnamed_order();
  std::set<std::string> corpora{};  // corpora of its last part
};
// Throws Error if the saved values are malformed.
FormerData former_data(const TrainState& saved, const std::string& checkpoint,
                       const RunConfig& config);

// Data of a run as opened now.
struct PresentData {
  const Mixture& training;
  DataContents shards, validation;
};

// Throws Error if the shards of a corpus already read have changed, naming the first, or warns of
// it (data.changed_shards). If the checkpoint does not record the shards, compares with the
// manifest that its run keeps, or else only the number of tokens, with a warning. Warns of corpora
// that were added, removed or restored, and of changed validation data.
void check_corpora(const FormerData& former, const std::string& checkpoint, const PresentData& now,
                   const RunConfig& config);

// Returns the corpora in the order of the former run for its `rows` rows, and in their present
// order from there; logs it if the two differ.
std::shared_ptr<const Mixture> continued_data(const FormerData& former, int64_t rows,
                                              const Mixture& training_data);

// Adds to a state's `extra` data_tokens, the tokens of each corpus by its name, including those of
// `former` that are no longer read, or their number if the only one has no name; data_shards and
// validation_shards, the contents of shards by the same names; and data_order,
// MixtureOrder::json(), if corpora have names.
void add_data(TrainState& state, const PresentData& now, const FormerData& former);

}  // namespace mpt
