// What `mpretrain plan` says of a run: whether it could start here, how long it would take, what it needs.
//
// Every problem is what `train` would refuse the run with, found by the same code, but for room on the disk,
// which `train` would only miss when it saves. Nothing is written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/run_config.h"
#include "core/io/file_system.h"
#include "train/run_report.h"
#include "train/time_estimate.h"

namespace mpt {

// Shards of training or of validation. Without tokens where they are not named or not usable.
struct PlannedShards {
  bool named = false;
  int64_t tokens = 0, sequences = 0;
};

struct PlannedDisk {
  int64_t checkpoint = 0, kept = 0, at_most = 0;  // bytes
  std::string place;                              // the nearest directory that is there; "" if there is none
  int64_t free = 0;                               // bytes
};

struct RunPlan {
  std::vector<std::string> problems{};           // why the run cannot start; empty: it can
  int64_t needed = 0;                            // bytes of memory
  std::optional<int64_t> available{};            // bytes for this rank; none where there is no such device
  int64_t micro_batch = 0, micro_batches = 0;    // rows of one, configured; of this rank in a step
  std::optional<int64_t> largest_micro_batch{};  // rows that would fit
  PlannedShards training{}, validation{};
  std::optional<int64_t> tokenizer_pieces{};
  bool lacks_data = false;  // one of the problems is of tokens or tokenizer
  PlannedDisk disk{};
  TimeEstimate time{};

  [[nodiscard]] bool fits() const { return !available || needed <= *available; }
};

// `device` is make_planning_device()'s. Ranks on CPUs are taken to share this machine. Trains for a fraction
// of a second to see how fast the device is.
RunPlan plan_of(const RunConfig& config, Device& device, const Communicator& ranks = Communicator::single());

// For people, and the same for programs (docs/formats.md).
std::string verdict(const RunConfig& config, const RunPlan& plan);
nlohmann::ordered_json verdict_json(const RunConfig& config, const RunPlan& plan);

// Where a run is written: whether a new one may start there, and how much room there is.

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
