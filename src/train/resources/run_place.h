// A run's directory: whether a new run may start there, and whether its checkpoints fit on the
// disk.
#pragma once

#include <cstdint>
#include <string>

#include "config/run_config.h"
#include "core/io/file_system.h"
#include "device/device.h"

namespace mpt {

// Throws Error if the run's directory already holds a run, which only --resume continues, or only
// weights (weights/weights_checkpoint.h).
void require_new_run(FileSystem& fs, const RunConfig& config);

// The file system of the run's directory, which need not exist yet.
struct RunPlace {
  std::string directory;  // the run's, or its nearest existing parent
  int64_t free_bytes = 0;
};
// Throws Error if the directory cannot be created or its free space is unknown.
RunPlace place_of(const RunConfig& config);

struct PlannedDisk {
  int64_t checkpoint = 0, kept = 0, at_most = 0;  // bytes
  std::string place;                              // the nearest existing directory; "" if none
  int64_t free = 0;                               // bytes
};

// Whether the run is new or resumes from a checkpoint.
enum class Checkpoints : uint8_t { kNone, kSome };

// Returns the bytes of a run's checkpoints; the place is not determined.
PlannedDisk disk_of(const RunConfig& config, Device& device);
// Determines where checkpoints are written and throws Error if those yet to be written do not fit
// there. For a resumed run, that is the next one: existing ones already take up their space.
void find_room(const RunConfig& config, PlannedDisk& disk, Checkpoints saved);

// Logs a warning if the run's checkpoints do not fit on its disk: all of a new run, the next one of
// a run that has some.
void warn_of_little_disk(const RunConfig& config, Device& device, Checkpoints saved);

}  // namespace mpt
