#include "train/run_place.h"

#include <filesystem>

#include <unistd.h>

#include "core/check.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace mpt {

// A run that was stopped or failed before its first step is finished has left nothing to go on from, and may
// be started again.
void require_new_run(FileSystem& fs, const RunConfig& config) {
  if (has_metrics(fs, config) || !CheckpointStore(fs, checkpoint_directory(config), {}).list().empty())
    throw error(
        "{} already holds a run: continue it with --resume auto, or choose another name or output_dir",
        run_directory(config));
}

RunPlace place_of(const RunConfig& config) {
  std::error_code failure;
  std::filesystem::path place = run_directory(config);
  while (place.has_relative_path() && !std::filesystem::exists(place, failure)) place = place.parent_path();
  const std::string directory = place.empty() ? "." : place.string();
  if (!std::filesystem::is_directory(directory, failure))
    throw error("{}: cannot be made: {} is not a directory", run_directory(config), directory);
  if (::access(directory.c_str(), W_OK) != 0)
    throw error("{}: cannot be made: {} may not be written to", run_directory(config), directory);
  const std::filesystem::space_info space = std::filesystem::space(directory, failure);
  if (failure) throw error("{}: its free space is not known: {}", directory, failure.message());
  return {directory, static_cast<int64_t>(space.available)};
}

}  // namespace mpt
