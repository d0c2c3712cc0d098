// Whether two models are the same function of their weights.
#pragma once

#include <string>
#include <vector>

#include "model/llama_config.h"

namespace mpt {

struct ModelDifference {
  std::string key;          // "model.hidden_size"
  std::string there, here;  // "64"; "not set"

  // Of the rotary frequencies: model.rope_theta, model.rope_scaling.
  [[nodiscard]] bool is_of_rope() const;
};

// One for every key that matters and differs. A key that is left out has the value that it stands
// for.
std::vector<ModelDifference> model_differences(const LlamaConfig& there, const LlamaConfig& here);
// "model.hidden_size is 64 there and 32 here; ..."
std::string texts_of(const std::vector<ModelDifference>& differences);

}  // namespace mpt
