// Settings that a config may have although runs are known to end badly with them.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace mpt {

// One text per caution, for every phase: the keys with their values, how such runs ended, and what
// to set instead. `mpretrain plan` and the first lines of a run report them; nothing is refused.
std::vector<std::string> cautions(const RunConfig& config);

}  // namespace mpt
