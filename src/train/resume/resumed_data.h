// The training data of a run that goes on from a checkpoint: what was read stays read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_files.h"
#include "config/run_config.h"
#include "config/run_inputs.h"
#include "data/mixture.h"

namespace mpt {

// The shards of corpora or validation sets, by name.
using DataContents = std::map<std::string, std::vector<ShardContent>>;

DataContents contents_of(const Mixture& training_data);
DataContents contents_of(const std::vector<ValidationSet>& sets);

// Of the one corpus without a name.
MixtureOrder unnamed_order();

// What a checkpoint says of the data of its run. A corpus without a name that has one by now, with
// the same list of shards, goes by it.
struct FormerData {
  std::map<std::string, int64_t> tokens{};  // of every corpus that the run has had
  DataContents shards{};                    // of these, as far as the checkpoint has them
  DataContents validation{};                // of the validation sets, likewise
  MixtureOrder order = unnamed_order();
  std::set<std::string> corpora{};  // those of its last part
};
// Throws Error if the saved values are not of their form.
FormerData former_data(const TrainState& saved, const std::string& checkpoint,
                       const RunConfig& config);

// What the data of a run is, when it is opened.
struct PresentData {
  const Mixture& training;
  DataContents shards, validation;
};

// Throws Error if a corpus that was read has other shards now, naming the first of them, or warns
// of it (data.changed_shards). Where the checkpoint does not say which they were, the manifest that
// its run keeps is compared, or else the number of tokens alone, with a warning. Warns of corpora
// that come, go and come back, and of other validation data.
void check_corpora(const FormerData& former, const std::string& checkpoint, const PresentData& now,
                   const RunConfig& config);

// The corpora in the order of the former run for its `rows` rows, and in their present order from
// there; says so if the two differ.
std::shared_ptr<const Mixture> continued_data(const FormerData& former, int64_t rows,
                                              const Mixture& training_data);

// Adds to a state's `extra` data_tokens, the tokens of each corpus by its name, also of those of
// `former` that are no longer read, or their number where the only one has no name; data_shards and
// validation_shards, the contents of shards by the same names; and data_order,
// MixtureOrder::json(), where corpora have names.
void add_data(TrainState& state, const PresentData& now, const FormerData& former);

}  // namespace mpt
