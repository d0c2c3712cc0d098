#include "train/initial_weights.h"

#include <algorithm>

#include <spdlog/spdlog.h>

#include "config/model_differences.h"
#include "config/run_data.h"
#include "core/check.h"
#include "core/io/hash.h"
#include "data/manifest.h"
#include "weights/model_tokenizer.h"

namespace mpt {
namespace {

void tell_of_other_rope(const std::vector<ModelDifference>& found) {
  for (const ModelDifference& one : found)
    spdlog::info("train.init_from: {}: {} -> {}", one.key, one.there, one.here);
}

// Other rotary frequencies give another function, but one that weights can be trained for.
void check_model(const SavedWeights& saved, const RunConfig& config) {
  const std::vector<ModelDifference> found = model_differences(saved.config.model, config.model);
  const bool rope_alone = std::ranges::all_of(found, &ModelDifference::is_of_rope);
  if (rope_alone && config.train.init_from_other_rope) return tell_of_other_rope(found);
  if (!found.empty())
    throw error(
        "train.init_from: {} has another model than this run: {}{}", saved.checkpoint,
        texts_of(found),
        rope_alone ? "; train.init_from_other_rope=true accepts it, as for a longer context" : "");
}

// Identified by its hash, that of a file or one recorded in a manifest; "" if unknown.
struct KnownTokenizer {
  std::string name, hash;
};

KnownTokenizer recorded(const TokenizerFile& file) {
  return {file.path.empty()
              ? fmt::format("the one with hash {} ({})", file.data_hash, kManifestName)
              : file.path,
          file.data_hash};
}
KnownTokenizer stored(const TokenizerFile& file) {
  return {file.path, hash_bytes(bytes_of(read_tokenizer_file(file.path).bytes))};
}
// Tokenizer of weights: the one their run kept.
KnownTokenizer tokenizer_of_weights(const TokenizerFile& file) {
  return file.path.empty() ? recorded(file) : stored(file);
}
// Tokenizer of data: the one that made its tokens, whichever is next to them now.
KnownTokenizer tokenizer_of_tokens(const TokenizerFile& file) {
  return file.path.empty() || !file.data_hash.empty() ? recorded(file) : stored(file);
}

// Another tokenizer's token ids mean other pieces.
void check_tokenizer(const SavedWeights& saved, const RunConfig& config) {
  const TokenizerFile file = find_tokenizer(saved, ""), of_data = find_tokenizer(config, "");
  const KnownTokenizer there = tokenizer_of_weights(file), here = tokenizer_of_tokens(of_data);
  if (file.prepend_bos && !of_data.prepend_bos && !of_data.data_hash.empty())
    spdlog::warn(
        "train.init_from: texts of {} begin with BOS, those of this run's data do not; `tokenize "
        "--bos` puts it there",
        saved.checkpoint);
  if (there.hash.empty() || here.hash.empty() || there.hash == here.hash) return;
  throw error(
      "train.init_from: the tokenizer of {} is {}, that of this run's data is {}, another one: its "
      "tokens are not those of the weights. Tokenize the data with the first",
      saved.checkpoint, there.name, here.name);
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
    tell_what_is_left_out(saved);
    verified = saved.checkpoint;
  });
  std::optional<SavedWeights> result;
  const std::string checkpoint = ranks.gather_texts(verified).front();
  ranks.together([&] { result = saved_weights_at(fs, checkpoint); });
  return result;
}

bool initial_weights_are_gone(FileSystem& fs, const SavedWeights& initial, const RunConfig& config,
                              Communicator& ranks) {
  const bool gone = ranks.is_root() && was_removed(fs, initial.checkpoint, *config.train.init_from);
  return ranks.gather_numbers(gone ? 1 : 0).front() != 0;
}

}  // namespace mpt
