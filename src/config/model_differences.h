// Whether two models are the same function of their weights.
#pragma once

#include <string>
#include <vector>

#include "model/llama_config.h"

namespace mpt {

// "model.hidden_size is 64 there and 32 here", for every key that matters and differs. A key that
// is left out has the value that it stands for.
std::vector<std::string> model_differences(const LlamaConfig& there, const LlamaConfig& here);

}  // namespace mpt
