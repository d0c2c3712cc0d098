// What the verb `checkpoint` does: looks after the checkpoints of a run that need not be training.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_store.h"
#include "core/enum_names.h"
#include "core/io/file_system.h"

namespace mpt {

// kNotChecked: state.json, sizes and headers are as they should be; the content was not read.
enum class CheckpointStatus : uint8_t { kGood, kNotChecked, kBad };
template <>
struct EnumNames<CheckpointStatus> {
  static constexpr std::array<std::string_view, 3> kNames{"good", "not_checked", "bad"};
};

struct CheckpointSummary {
  std::string path;
  std::optional<int64_t> step, tokens, ranks, version;  // where state.json can be read
  int64_t bytes = 0;                                    // of all its files
  std::string saved_at;                                 // "" where it is not known
  CheckpointStatus status = CheckpointStatus::kBad;
  std::string problem;  // what is wrong with it
};

// Whether every byte is read.
enum class Scrutiny : uint8_t { kSizes, kHashes };

// The committed checkpoints by ascending step. `path` is a run's directory, its checkpoints directory or one
// checkpoint; anything else is an Error that says what would be accepted.
std::vector<CheckpointSummary> inspect_checkpoints(FileSystem& fs, const std::string& path,
                                                   Scrutiny scrutiny);
std::string checkpoint_table(const std::vector<CheckpointSummary>& checkpoints);
nlohmann::ordered_json checkpoints_json(const std::vector<CheckpointSummary>& checkpoints);

enum class PruneMode : uint8_t { kRemove, kOnlySay };

struct PruneCommand {
  std::string path;  // a run's directory or its checkpoints directory
  Retention retention;
  PruneMode mode = PruneMode::kRemove;
};
struct PruneResult {
  std::vector<std::string> removed;  // or to be removed: checkpoints and leftovers of crashes
  std::vector<std::string> kept;
  int64_t bytes = 0;  // of what is removed
};
// The run's own rule, and beside that the newest good checkpoint stays; with none good nothing is removed and
// an Error thrown. So it is where a run is training in that directory.
PruneResult prune_checkpoints(FileSystem& fs, const PruneCommand& command);

}  // namespace mpt
