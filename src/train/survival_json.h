// The `update_survival` object of a step's record in metrics.jsonl.
#pragma once

#include <span>

#include <nlohmann/json.hpp>

#include "optim/survival.h"

namespace mpt {

nlohmann::ordered_json survival_json(std::span<const Survival> tensors);

}  // namespace mpt
