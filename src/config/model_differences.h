// Compares two models: are they the same function of their weights?
#pragma once

#include <string>
#include <vector>

#include "model/llama_config.h"

namespace mpt {

struct ModelDifference {
  std::string key;          // "model.hidden_size"
  std::string there, here;  // "64"; "not set"

  // Whether the key affects the rotary frequencies: model.rope_theta, model.rope_scaling.
  [[nodiscard]] bool is_of_rope() const;
};

// Returns one entry per key that matters and differs. An omitted key has the value it implies.
std::vector<ModelDifference> model_differences(const LlamaConfig& there, const LlamaConfig& here);
// "model.hidden_size is 64 there and 32 here; ..."
std::string texts_of(const std::vector<ModelDifference>& differences);

}  // namespace mpt
