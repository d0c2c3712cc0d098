#include "config/model_differences.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json/config_writer.h"
#include "core/json/json_parse.h"

namespace mpt {
namespace {

// The model section without the keys that do not affect a function of given weights, and with the
// implied values of omitted keys.
nlohmann::json function_of(LlamaConfig model) {
  model.num_key_value_heads = model.key_value_heads();
  model.head_size = model.head_dim();
  nlohmann::json keys = nlohmann::json(write_fields(model));
  keys.erase("initializer_range");
  keys.erase("pad_multiple");
  return keys.flatten();
}

}  // namespace

bool ModelDifference::is_of_rope() const { return key.starts_with("model.rope_"); }

std::string texts_of(const std::vector<ModelDifference>& differences) {
  std::string texts;
  for (const ModelDifference& one : differences)
    texts += fmt::format("{}{} is {} there and {} here", texts.empty() ? "" : "; ", one.key,
                         one.there, one.here);
  return texts;
}

std::vector<ModelDifference> model_differences(const LlamaConfig& there, const LlamaConfig& here) {
  const nlohmann::json a = function_of(there), b = function_of(here);
  nlohmann::json both = a;
  both.update(b);
  std::vector<ModelDifference> found;
  for (const auto& item : both.items()) {
    const auto text = [&](const nlohmann::json& keys) {
      return keys.contains(item.key()) ? json_text(keys.at(item.key())) : std::string("not set");
    };
    if (text(a) == text(b)) continue;
    std::string key = "model" + item.key();
    std::ranges::replace(key, '/', '.');
    found.push_back({std::move(key), text(a), text(b)});
  }
  return found;
}

}  // namespace mpt
