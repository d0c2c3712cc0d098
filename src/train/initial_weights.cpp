#include "train/initial_weights.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "config/run_inputs.h"
#include "core/check.h"
#include "core/json/config_writer.h"

namespace mpt {
namespace {

// The model section without what a function of given weights does not depend on, and with what it
// stands for where a key is left out.
nlohmann::json function_of(LlamaConfig model) {
  model.num_key_value_heads = model.key_value_heads();
  model.head_size = model.head_dim();
  nlohmann::json keys = nlohmann::json(FieldWriter::write(model));
  keys.erase("initializer_range");
  keys.erase("pad_multiple");
  return keys.flatten();
}

// "model.hidden_size is 64 there and 32 here", for every key that differs.
std::vector<std::string> differences(const LlamaConfig& there, const LlamaConfig& here) {
  const nlohmann::json a = function_of(there), b = function_of(here);
  nlohmann::json both = a;
  both.update(b);
  std::vector<std::string> found;
  for (const auto& item : both.items()) {
    const auto text = [&](const nlohmann::json& keys) {
      return keys.contains(item.key()) ? keys.at(item.key()).dump() : std::string("not set");
    };
    if (text(a) == text(b)) continue;
    std::string key = "model" + item.key();
    std::ranges::replace(key, '/', '.');
    found.push_back(fmt::format("{} is {} there and {} here", key, text(a), text(b)));
  }
  return found;
}

void check_model(const SavedWeights& saved, const RunConfig& config) {
  const std::vector<std::string> found = differences(saved.config.model, config.model);
  if (!found.empty())
    throw error("train.init_from: {} has another model than this run: {}", saved.checkpoint,
                fmt::join(found, "; "));
}

// Token ids of another tokenizer mean other pieces.
void check_tokenizer(FileSystem& fs, const SavedWeights& saved, const RunConfig& config) {
  const std::string there = find_tokenizer(saved.config, "", saved.checkpoint).path,
                    here = tokenizer_of(config.data);
  if (there.empty() || here.empty() || hash_file(fs, there) == hash_file(fs, here)) return;
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
    check_tokenizer(fs, saved, config);
    verified = saved.checkpoint;
  });
  std::optional<SavedWeights> result;
  const std::string checkpoint = ranks.gather_texts(verified).front();
  ranks.together([&] { result = saved_weights_at(fs, checkpoint); });
  return result;
}

}  // namespace mpt
