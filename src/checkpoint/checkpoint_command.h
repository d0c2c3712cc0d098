// Implements the verb `checkpoint`: lists, verifies and prunes the checkpoints of a run, which need
// not be training.
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

// kNotChecked: state.json, sizes and headers are correct; the contents were not read.
enum class CheckpointStatus : uint8_t { kGood, kNotChecked, kBad };
template <>
struct EnumNames<CheckpointStatus> {
  static constexpr std::array<std::string_view, 3> kNames{"good", "not_checked", "bad"};
};

struct CheckpointSummary {
  std::string path;
  std::optional<int64_t> step, tokens, ranks, version;  // if state.json can be read
  int64_t bytes = 0;                                    // all files
  std::string saved_at;                                 // "" if unknown
  CheckpointStatus status = CheckpointStatus::kBad;
  std::string problem;  // "" unless kBad
};

// Depth of the check: sizes and headers, or also the hash of every file.
enum class Scrutiny : uint8_t { kSizes, kHashes };

// Lists the committed checkpoints by ascending step. `path` is a run's directory, its checkpoints
// directory or a single checkpoint; otherwise throws Error naming the accepted paths.
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
  std::vector<std::string>
      removed;  // with kOnlySay: would be removed; checkpoints and leftovers of crashes
  std::vector<std::string> kept;
  int64_t bytes = 0;  // of the removed paths
};
// Names the checkpoints set aside when a run went back to an earlier step, and their size; "" if
// there are none.
std::string set_aside_note(FileSystem& fs, const std::string& path);

// Applies `retention`, and always keeps the newest good checkpoint. Throws Error and removes
// nothing if there are checkpoints but none is good, or (kRemove) if a run is training in that
// directory.
PruneResult prune_checkpoints(FileSystem& fs, const PruneCommand& command);

}  // namespace mpt
