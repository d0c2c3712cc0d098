// The training data of a run that goes on from a checkpoint: what was read stays read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "checkpoint/checkpoint_files.h"
#include "config/run_config.h"
#include "data/mixture.h"

namespace mpt {

// What a checkpoint says of the data of its run. A corpus without a name that has one by now, with
// the same list of shards, goes by it.
struct FormerData {
  std::map<std::string, int64_t> tokens{};  // of every corpus that the run has had
  MixtureOrder order;
  std::set<std::string> corpora{};  // those of its last part
};
// Throws Error if the saved values are not of their form.
FormerData former_data(const TrainState& saved, const std::string& checkpoint,
                       const RunConfig& config);

// Throws Error if a corpus that was read has other shards now. Warns of corpora that come, go and
// come back.
void check_corpora(const FormerData& former, const std::string& checkpoint,
                   const Mixture& training_data);

// The corpora in the order of the former run for its `rows` rows, and in their present order from
// there; says so if the two differ.
std::shared_ptr<const Mixture> continued_data(const FormerData& former, int64_t rows,
                                              const Mixture& training_data);

// Adds to a state's `extra` data_tokens, the tokens of each corpus by its name, also of those of
// `former` that are no longer read, or their number where the only one has no name; and
// data_order, MixtureOrder::json(), where corpora have names.
void add_data(TrainState& state, const Mixture& training_data,
              const std::map<std::string, int64_t>& former);

}  // namespace mpt
