#include "train/initial_weights.h"

#include <fmt/ranges.h>

#include "config/model_differences.h"
#include "config/run_inputs.h"
#include "core/check.h"
#include "core/io/hash.h"
#include "data/manifest.h"

namespace mpt {
namespace {

void check_model(const SavedWeights& saved, const RunConfig& config) {
  const std::vector<std::string> found = model_differences(saved.config.model, config.model);
  if (!found.empty())
    throw error("train.init_from: {} has another model than this run: {}", saved.checkpoint,
                fmt::join(found, "; "));
}

// A tokenizer whose file may be gone: a manifest keeps its hash.
struct KnownTokenizer {
  std::string name, hash;  // "" if unknown
};

KnownTokenizer tokenizer_at(const std::string& path, const std::string& recorded_hash) {
  if (!path.empty()) return {path, hash_bytes(bytes_of(read_tokenizer_file(path).bytes))};
  return {fmt::format("the one with hash {} ({})", recorded_hash, kManifestName), recorded_hash};
}

// Token ids of another tokenizer mean other pieces.
void check_tokenizer(const SavedWeights& saved, const RunConfig& config) {
  const TokenizerFile file = find_tokenizer(saved, ""), of_data = find_tokenizer(config, "");
  const KnownTokenizer there = tokenizer_at(file.path, file.data_hash),
                       here = tokenizer_at(of_data.path, of_data.data_hash);
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
    verified = saved.checkpoint;
  });
  std::optional<SavedWeights> result;
  const std::string checkpoint = ranks.gather_texts(verified).front();
  ranks.together([&] { result = saved_weights_at(fs, checkpoint); });
  return result;
}

}  // namespace mpt
