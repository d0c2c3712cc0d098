// Bytes that a run keeps, counted three ways (NUMERICS "Memory accounting"): nominal, as papers do, a figure
// a parameter from the formats alone; logical, the elements and scales a checkpoint holds; allocated, with
// padding and alignment.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "device/memory_plan.h"
#include "train/run_config.h"

namespace mpt {

struct StorageBytes {
  double nominal_weights = 0;  // bytes a parameter
  double nominal_states = 0;
  double nominal_gradient = 0;
  int64_t logical_weights = 0;  // bytes
  int64_t logical_states = 0;   // numbers that exist once a tensor are left out
  int64_t allocated_weights = 0;
  int64_t allocated_states = 0;
  int64_t allocated_gradients = 0;

  [[nodiscard]] double nominal_persistent() const { return nominal_weights + nominal_states; }
};

StorageBytes storage_bytes(const RunConfig& config, Device& device);

}  // namespace mpt
