// Fitting a run into a device's memory: whether it fits, and the rows of its micro-batches if
// batch.micro_batch_rows=0.
//
// Another micro-batch sums gradients in another order, so the number is part of what a run
// computes. It is chosen once, before anything is allocated, identically on all ranks, and recorded
// in config.json and in checkpoints; a resumed run continues with the recorded number.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "device/device.h"
#include "ranks/communicator.h"

namespace mpt {

// Memory that one rank may use.
struct FreeMemory {
  static constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

  int64_t bytes = kUnknown;
  Backend backend = Backend::kCpu;  // whose memory it is
  int64_t sharing = 1;              // ranks that share the device, each with `bytes`

  [[nodiscard]] bool known() const { return bytes != kUnknown; }
};
// Returns the memory now free on a device that `sharing` ranks share; none on a planning-only
// device.
FreeMemory free_memory(const Device& device, int64_t sharing = 1);
// Returns the number of ranks of a planned run that share its device: all on this machine, on a
// CPU.
int64_t ranks_sharing(const Device& device, const Communicator& ranks);

// Memory that an automatic choice of rows leaves free for what plans do not count. On a GPU: the
// code of cuBLASLt and cuDNN, loaded at each kernel's first use, plans that cuDNN compiles, the
// recorded step, NCCL's channels, rounding of each buffer to whole pages, and for a moment the
// random draws of the largest tensor's initial weights. On a CPU: stacks, the page cache of the
// shards, other processes. A tenth, on a GPU at least 1 GiB; on an H200 0.26 to 0.32 GB were used.
int64_t head_room(const FreeMemory& memory);

// Returns the rows of the largest micro-batch of at most `most` rows that leaves the head-room
// free; 0 if none does. It divides the rows of a step; among numbers that split a rank's rows into
// equally many micro-batches it is the smallest, which makes them most equal. On a CPU, a whole
// step that fits is taken without head-room.
int64_t largest_micro_batch(const RunConfig& config, Device& device, const Communicator& ranks,
                            const FreeMemory& memory,
                            int64_t most = std::numeric_limits<int64_t>::max());

RunConfig with_micro_batch(const RunConfig& config, int64_t rows);

// A run's batches as recorded in a checkpoint.
struct RecordedRows {
  int64_t step = 0, micro_batch = 0, galore_batch = 0;
};

// A config with batch.micro_batch_rows and eval.galore_batch_rows set.
struct ChosenRows {
  RunConfig config;
  std::string reason{};  // for the run's first lines; "" if the config names the number
};
// For a plan: the choice of this rank by itself. One row if not even that fits.
ChosenRows choose_rows(const RunConfig& config, Device& device, const Communicator& ranks,
                       const FreeMemory& memory);
// For a run: the recorded number if there is one for the same step, else the largest that fits on
// all ranks. No rank returns before all have measured their memory. Collective.
ChosenRows choose_rows_together(const RunConfig& config, Device& device, Communicator& ranks,
                                const FreeMemory& memory,
                                const std::optional<RecordedRows>& recorded);

// Result of choose_rows() on GPUs with that much memory free.
struct RowsOnGpu {
  int64_t gigabytes = 0;  // 1e9 bytes
  int64_t rows = 0;       // 0: not even one fits
};
struct RowsOnGpus {
  std::vector<RowsOnGpu> gpus{};
  Backend counted_for = Backend::kCuda;  // kCpu: built without GPU support, so counted for a CPU
};
RowsOnGpus rows_on_gpus(const RunConfig& config, Device& device, const Communicator& ranks);

// Throws Error with the sizes, and a change that would fit, if training needs more memory.
void require_memory(const ChosenRows& chosen, Device& device, const Communicator& ranks,
                    const FreeMemory& memory);

}  // namespace mpt
