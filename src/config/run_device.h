// The device that a run's config selects.
#pragma once

#include <memory>
#include <string>

#include "config/run_config.h"
#include "device/device.h"
#include "model/linears.h"

namespace mpt {

// Backend that the config selects.
Backend backend_of(const DeviceConfig& config);
// Throws Error if any phase of the run computes in a format that the backend lacks.
void require_compute(const RunConfig& config, Backend backend);
// Creates the device that the config selects.
std::unique_ptr<Device> make_device(const DeviceConfig& config);
// Why this machine lacks that device; empty if it has it.
std::string why_unavailable(const DeviceConfig& config);
// Creates that device for planning; if this machine lacks it, a device that only counts memory.
std::unique_ptr<Device> make_planning_device(const DeviceConfig& config);
// Creates a GPU that only counts memory, whatever device the config selects; null if the program
// was built without CUDA. Does not require cuDNN, which this machine may lack.
std::unique_ptr<Device> make_planning_gpu(const DeviceConfig& config);

// Which FP8 weight codes the backend keeps in memory.
WeightCodes weight_codes_of(const DeviceConfig& config, Backend backend);

}  // namespace mpt
