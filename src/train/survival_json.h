// Telemetry of a step's record in metrics.jsonl: the `update_survival` object.
#pragma once

#include <span>

#include <nlohmann/json.hpp>

#include "model/linears.h"
#include "optim/survival.h"

namespace mpt {

nlohmann::ordered_json survival_json(std::span<const Survival> tensors);
// The `fp8_scaling` object.
nlohmann::ordered_json fp8_scaling_json(std::span<const Fp8OperandState> operands);

}  // namespace mpt
