// What a run says before it starts, and what `mpretrain plan` says instead of starting: model, device,
// memory.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "device/device.h"
#include "train/rank_shape.h"
#include "train/run_config.h"

namespace mpt {

// Config, model and parameters by kind.
std::string model_report(const RunConfig& config);
// Memory by purpose against what the device has, bytes per parameter, the largest micro-batch that fits.
std::string memory_report(const RunConfig& config, Device& device, RankShape shape = {});
// The same figures for programs: parameters, steps, storage and memory, in bytes.
nlohmann::ordered_json plan_json(const RunConfig& config, Device& device, RankShape shape = {});
// How many ranks, what is a rank's of a step, and what it sends. `transport` carries it; may be empty.
std::string ranks_report(const RunConfig& config, Device& device, RankShape shape,
                         const std::string& transport);
// Device and libraries.
std::string device_report(Device& device);

// Throws Error with the figures if training would not fit in the device's memory, which `sharing` ranks like
// this one take from.
void require_memory(const RunConfig& config, Device& device, RankShape shape = {}, int64_t sharing = 1);

// Rows of the largest micro-batch that divides a step and fits; 0 if none does.
int64_t largest_micro_batch(const RunConfig& config, Device& device, RankShape shape = {});

}  // namespace mpt
