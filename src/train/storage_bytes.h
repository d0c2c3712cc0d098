// Bytes that a run keeps, counted three ways (docs/numerics.md "Memory accounting"): nominal, as papers do, a
// figure a parameter from the formats alone; logical, the elements and scales a checkpoint holds; allocated,
// with padding and alignment.
#pragma once

#include <cstdint>

#include "config/run_config.h"
#include "device/device.h"
#include "device/memory.h"

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

// Bytes of the tensors of one checkpoint, whatever the number of ranks; headers and state.json add some KiB.
int64_t checkpoint_bytes(const RunConfig& config, Device& device);

// Checkpoints that are there when the run is complete, by checkpoint.keep_last and keep_every_steps.
int64_t checkpoints_kept(const RunConfig& config);
// The most that are there at any time: one more where old ones go, since the new one is written first.
int64_t checkpoints_at_most(const RunConfig& config);

}  // namespace mpt
