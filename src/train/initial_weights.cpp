#include "train/initial_weights.h"

#include <fmt/ranges.h>

#include "config/model_differences.h"
#include "config/run_inputs.h"
#include "core/check.h"

namespace mpt {
namespace {

void check_model(const SavedWeights& saved, const RunConfig& config) {
  const std::vector<std::string> found = model_differences(saved.config.model, config.model);
  if (!found.empty())
    throw error("train.init_from: {} has another model than this run: {}", saved.checkpoint,
                fmt::join(found, "; "));
}

// Token ids of another tokenizer mean other pieces.
void check_tokenizer(const SavedWeights& saved, const RunConfig& config) {
  const std::string there = find_tokenizer(saved.config, "", saved.checkpoint).path,
                    here = tokenizer_of(config.data);
  if (there.empty() || here.empty() ||
      read_tokenizer_file(there).bytes == read_tokenizer_file(here).bytes)
    return;
  throw error(
      "train.init_from: the tokenizer of {} is {}, that of this run's data is {}, another one: its "
      "tokens are not those of the weights. Tokenize the data with the first",
      saved.checkpoint, there, here);
}

}  // namespace

std::optional<SavedWeights> initial_weights(FileSystem& fs, const RunConfig& config,
                                            Communicator& ranks) {
  if (!config.train.init_from) return std::nullopt;
  std::string verified;
  ranks.together([&] {
    if (!ranks.is_root()) return;
    const SavedWeights saved = find_saved_weights(fs, *config.train.init_from);
    check_model(saved, config);
    check_tokenizer(saved, config);
    verified = saved.checkpoint;
  });
  std::optional<SavedWeights> result;
  const std::string checkpoint = ranks.gather_texts(verified).front();
  ranks.together([&] { result = saved_weights_at(fs, checkpoint); });
  return result;
}

}  // namespace mpt
