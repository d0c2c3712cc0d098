// What a config may say although runs are known to end badly with it.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace mpt {

// A text each, of every phase: the keys with their values, what such runs came to, and what to set
// instead. `mpretrain plan` and the first lines of a run tell them; nothing is refused.
std::vector<std::string> cautions(const RunConfig& config);

}  // namespace mpt
