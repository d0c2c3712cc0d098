// Telemetry of a step's record in metrics.jsonl: the `update_statistics` object.
#pragma once

#include <span>

#include <nlohmann/json.hpp>

#include "model/linears.h"
#include "optim/update_statistics.h"

namespace mpt {

nlohmann::ordered_json update_statistics_json(std::span<const UpdateStatistics> tensors);
// The `fp8_scaling` object.
nlohmann::ordered_json fp8_scaling_json(std::span<const Fp8OperandState> operands);

}  // namespace mpt
