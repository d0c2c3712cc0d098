#include "train/resources/run_place.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <spdlog/spdlog.h>
#include <unistd.h>

#include "checkpoint/checkpoint_store.h"
#include "config/run_paths.h"
#include "core/check.h"
#include "core/text/units.h"
#include "train/resources/storage_bytes.h"
#include "weights/weights_checkpoint.h"

namespace mpt {

PlannedDisk disk_of(const RunConfig& config, Device& device) {
  PlannedDisk disk;
  for (const RunPhase& phase : run_phases(config))
    disk.checkpoint = std::max(disk.checkpoint, checkpoint_bytes(phase.config, device));
  disk.kept = checkpoints_kept(config) * disk.checkpoint;
  disk.at_most = checkpoints_at_most(config) * disk.checkpoint;
  return disk;
}

void find_room(const RunConfig& config, PlannedDisk& disk, Checkpoints saved) {
  const int64_t bytes = saved == Checkpoints::kSome ? disk.checkpoint : disk.at_most;
  const RunPlace place = place_of(config);
  disk.place = place.directory;
  disk.free = place.free_bytes;
  if (bytes > disk.free)
    throw error(
        "checkpoints need up to {}, {} is free at {}; lower checkpoint.keep_last, {}or choose "
        "another output_dir",
        format_bytes(double(bytes)), format_bytes(double(disk.free)), disk.place,
        config.checkpoint.keep_every_steps > 0 ? "raise checkpoint.keep_every_steps, " : "");
}

void warn_of_little_disk(const RunConfig& config, Device& device, Checkpoints saved) {
  PlannedDisk disk = disk_of(config, device);
  try {
    find_room(config, disk, saved);
  } catch (const Error& problem) {
    spdlog::warn("{}", problem.what());
  }
}

// A run that ended before finishing its first step has nothing to resume, so it may start again.
void require_new_run(FileSystem& fs, const RunConfig& config) {
  const std::string directory = run_directory(config);
  const CheckpointStore store(fs, checkpoint_directory(config), {});
  const std::vector<CheckpointInfo> checkpoints = store.list();
  const bool has_run = has_metrics(fs, config);
  if (!has_run && !checkpoints.empty() &&
      holds_weights_only(store.read_state(checkpoints.back().path)))
    throw error(
        "{} holds only weights, not a run: choose another name or output_dir, and start from "
        "them with train.init_from={}",
        directory, directory);
  if (has_run || !checkpoints.empty())
    throw error(
        "{} already holds a run: resume it with --resume auto, or choose another name or "
        "output_dir",
        directory);
}

RunPlace place_of(const RunConfig& config) {
  std::error_code failure;
  std::filesystem::path place = run_directory(config);
  while (place.has_relative_path() && !std::filesystem::exists(place, failure))
    place = place.parent_path();
  const std::string directory = place.empty() ? "." : place.string();
  if (!std::filesystem::is_directory(directory, failure))
    throw error("{}: cannot be created: {} is not a directory", run_directory(config), directory);
  if (::access(directory.c_str(), W_OK) != 0)
    throw error("{}: cannot be created: {} is not writable", run_directory(config), directory);
  const std::filesystem::space_info space = std::filesystem::space(directory, failure);
  if (failure) throw error("{}: free space unknown: {}", directory, failure.message());
  return {directory, static_cast<int64_t>(space.available)};
}

}  // namespace mpt
