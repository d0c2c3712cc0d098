// Bytes that a run stores, counted three ways (docs/numerics.md "Memory accounting"). Nominal, as
// in papers: bytes per parameter from the formats. Logical: the elements and scales a checkpoint
// holds. Allocated: with padding and alignment.
#pragma once

#include <cstdint>

#include "config/run_config.h"
#include "device/device.h"
#include "device/memory.h"

namespace mpt {

struct StorageBytes {
  double nominal_weights = 0;  // bytes per parameter
  double nominal_states = 0;
  double nominal_gradient = 0;
  int64_t logical_weights = 0;  // bytes
  int64_t logical_states = 0;   // excluding per-tensor scalars
  int64_t allocated_weights = 0;
  int64_t allocated_states = 0;
  int64_t allocated_gradients = 0;

  [[nodiscard]] double nominal_persistent() const { return nominal_weights + nominal_states; }
};

StorageBytes storage_bytes(const RunConfig& config, Device& device);

// Returns the tensor bytes of one checkpoint, for any number of ranks; headers and state.json add
// some KiB.
int64_t checkpoint_bytes(const RunConfig& config, Device& device);

// Checkpoints kept when the run is complete, by checkpoint.keep_last and keep_every_steps.
int64_t checkpoints_kept(const RunConfig& config);
// The maximum at any time: one more if old ones are pruned, since the new one is written first.
int64_t checkpoints_at_most(const RunConfig& config);

}  // namespace mpt
