// Where a run is written: whether a new one may start there, and how much room there is.
#pragma once

#include <cstdint>
#include <string>

#include "core/file_system.h"
#include "train/run_config.h"

namespace mpt {

// Throws Error if the run's directory holds a run, which only --resume goes on with.
void require_new_run(FileSystem& fs, const RunConfig& config);

// The file system that the run's directory is on, or will be on once it is made.
struct RunPlace {
  std::string directory;  // the nearest to the run's that is there
  int64_t free_bytes = 0;
};
// Throws Error where no directory can be made, or the file system does not answer.
RunPlace place_of(const RunConfig& config);

}  // namespace mpt
