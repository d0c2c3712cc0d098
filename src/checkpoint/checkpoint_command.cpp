#include "checkpoint/checkpoint_command.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/checkpoint_store.h"
#include "core/check.h"
#include "core/io/directory_lock.h"
#include "core/io/run_paths.h"
#include "core/text/units.h"

namespace mpt {
namespace {

std::string name_in(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

std::vector<CheckpointInfo> checkpoints_at(FileSystem& fs, const std::string& given) {
  const std::string path = without_slashes(given);
  if (!fs.exists(path)) throw error("{}: no such checkpoint or run directory", path);
  const std::optional<int64_t> step = step_of_checkpoint(name_in(path));
  if (step || has_optional_file(fs, in_directory(path, kStateName)))
    return {{step.value_or(-1), path}};
  if (!fs.is_directory(path))
    throw error(
        "{}: not a directory; expected a checkpoint (.../step_00001000) or the directory of a run",
        path);
  const std::string directory = directory_of_checkpoints(fs, path);
  std::vector<CheckpointInfo> found = CheckpointStore(fs, directory, {}).list();
  if (found.empty() && directory == path)
    throw error("{}: neither a checkpoint (it has no {}) nor a run (it has no {}/step_...)", path,
                kStateName, kCheckpoints);
  return found;
}

// Total size of all regular files below `path`, in bytes; links are not followed.
int64_t bytes_below(FileSystem& fs, const std::string& path) {
  const FileKind kind = fs.is_link(path) ? FileKind::kOther : fs.kind(path);
  if (kind == FileKind::kRegular) return fs.file_size(path);
  if (kind != FileKind::kDirectory) return 0;
  int64_t bytes = 0;
  for (const std::string& name : fs.list_directory(path))
    bytes += bytes_below(fs, path + "/" + name);
  return bytes;
}

void describe_state(FileSystem& fs, CheckpointSummary& summary) {
  const CheckpointRecord record = read_checkpoint_record(fs, summary.path);
  summary.step = record.state.step;
  summary.tokens = record.state.tokens;
  summary.ranks = std::ssize(record.files);
  summary.version = record.version;
  summary.saved_at = record.saved_at;
}

// The defect of a checkpoint; "" if it has none.
std::string problem_of(FileSystem& fs, const CheckpointInfo& info, Scrutiny scrutiny) {
  try {
    const int64_t step = scrutiny == Scrutiny::kHashes ? verify_checkpoint(fs, info.path).step
                                                       : inspect_checkpoint(fs, info.path).step;
    if (info.step >= 0 && step != info.step) throw error("{}: contains step {}", info.path, step);
    return "";
  } catch (const Error& defect) {
    return defect.what();
  }
}

CheckpointSummary summary_of(FileSystem& fs, const CheckpointInfo& info, Scrutiny scrutiny) {
  CheckpointSummary summary{.path = info.path,
                            .step = {},
                            .tokens = {},
                            .ranks = {},
                            .version = {},
                            .bytes = 0,
                            .saved_at = {},
                            .status = CheckpointStatus::kBad,
                            .problem = {}};
  try {
    summary.bytes = bytes_below(fs, info.path);
    describe_state(fs, summary);
    summary.problem = problem_of(fs, info, scrutiny);
  } catch (const Error& defect) {
    summary.problem = defect.what();
  }
  if (summary.problem.empty())
    summary.status =
        scrutiny == Scrutiny::kHashes ? CheckpointStatus::kGood : CheckpointStatus::kNotChecked;
  return summary;
}

std::string text_of(const std::optional<int64_t>& number) {
  return number ? std::to_string(*number) : std::string("?");
}

// --- prune ---------------------------------------------------------------------------------------

// Returns the newest checkpoint that verifies. Throws Error if none does.
std::string newest_good(FileSystem& fs, const std::string& directory,
                        const std::vector<CheckpointInfo>& checkpoints) {
  std::string problems;
  for (auto info = checkpoints.rbegin(); info != checkpoints.rend(); ++info) {
    const std::string problem = problem_of(fs, *info, Scrutiny::kHashes);
    if (problem.empty()) return info->path;
    problems += "\n  " + problem;
  }
  throw error("{}: no intact checkpoint; nothing is removed{}", directory, problems);
}

void check_is_no_checkpoint(FileSystem& fs, const std::string& path) {
  if (step_of_checkpoint(name_in(path)) || has_optional_file(fs, in_directory(path, kStateName)))
    throw error(
        "{} is a single checkpoint; expected the directory of a run or its checkpoints directory",
        path);
}

}  // namespace

std::vector<CheckpointSummary> inspect_checkpoints(FileSystem& fs, const std::string& path,
                                                   Scrutiny scrutiny) {
  const auto removed_meanwhile = [&](const CheckpointSummary& one) {
    return !one.problem.empty() && one.path != without_slashes(path) && !fs.exists(one.path);
  };
  for (int look = 1;; ++look) {
    std::vector<CheckpointSummary> summaries;
    for (const CheckpointInfo& info : checkpoints_at(fs, path))
      summaries.push_back(summary_of(fs, info, scrutiny));
    const size_t removed = std::erase_if(summaries, removed_meanwhile);
    if (removed == 0 || !summaries.empty() || look == kMostLooks) return summaries;
  }
}

std::string checkpoint_table(const std::vector<CheckpointSummary>& checkpoints) {
  std::string table =
      fmt::format("{:>10}  {:>8}  {:>10}  {:>5}  {:>6}  {:<20}  {:<11}  {}\n", "step", "tokens",
                  "bytes", "ranks", "format", "saved (UTC)", "status", "path");
  for (const CheckpointSummary& c : checkpoints) {
    table += fmt::format(
        "{:>10}  {:>8}  {:>10}  {:>5}  {:>6}  {:<20}  {:<11}  {}\n", text_of(c.step),
        c.tokens ? format_count(double(*c.tokens)) : "?", format_bytes(double(c.bytes)),
        text_of(c.ranks), text_of(c.version), c.saved_at.empty() ? "?" : c.saved_at,
        c.status == CheckpointStatus::kNotChecked ? "not checked" : name_of(c.status), c.path);
    if (!c.problem.empty()) table += fmt::format("{:>12}{}\n", "", c.problem);
  }
  return table;
}

nlohmann::ordered_json checkpoints_json(const std::vector<CheckpointSummary>& checkpoints) {
  const auto or_null = [](const std::optional<int64_t>& number) {
    return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json();
  };
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
  };
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CheckpointSummary& c : checkpoints)
    list.push_back({{"path", c.path},
                    {"step", or_null(c.step)},
                    {"tokens", or_null(c.tokens)},
                    {"bytes", c.bytes},
                    {"ranks", or_null(c.ranks)},
                    {"format_version", or_null(c.version)},
                    {"saved_at", text_or_null(c.saved_at)},
                    {"status", std::string(name_of(c.status))},
                    {"problem", text_or_null(c.problem)}});
  return list;
}

std::string set_aside_note(FileSystem& fs, const std::string& path) {
  const CheckpointStore store(fs, directory_of_checkpoints(fs, without_slashes(path)), {});
  const std::vector<std::string> paths = store.set_aside();
  if (paths.empty()) return "";
  int64_t bytes = 0;
  std::string names;
  for (const std::string& one : paths) {
    bytes += bytes_below(fs, one);
    names += "\n  " + one;
  }
  return fmt::format(
      "abandoned ({}): newer than the checkpoint the run resumed from; delete them manually:{}\n",
      format_bytes(double(bytes)), names);
}

PruneResult prune_checkpoints(FileSystem& fs, const PruneCommand& command) {
  const std::string path = without_slashes(command.path);
  if (!fs.is_directory(path)) throw error("{}: no such directory", path);
  check_is_no_checkpoint(fs, path);
  const std::string directory = directory_of_checkpoints(fs, path);
  std::optional<DirectoryLock> lock;
  const std::string run = run_of_checkpoint(in_directory(directory, "any"));
  if (command.mode == PruneMode::kRemove && !run.empty()) lock.emplace(run);

  CheckpointStore store(fs, directory, command.retention);
  const std::vector<CheckpointInfo> checkpoints = store.list();
  PruneResult result{.removed = store.leftovers(), .kept = {}, .bytes = 0};
  if (checkpoints.empty() && result.removed.empty())
    throw error("{}: no checkpoints (step_...) and no leftovers of a crash", directory);
  std::vector<int64_t> steps;
  for (const CheckpointInfo& info : checkpoints) steps.push_back(info.step);
  std::vector<int64_t> pruned = steps_to_prune(steps, command.retention);
  const std::string good = checkpoints.empty() ? "" : newest_good(fs, directory, checkpoints);
  for (const CheckpointInfo& info : checkpoints) {
    const auto found = std::find(pruned.begin(), pruned.end(), info.step);
    if (info.path == good && found != pruned.end()) pruned.erase(found);
    const bool goes = std::find(pruned.begin(), pruned.end(), info.step) != pruned.end();
    (goes ? result.removed : result.kept).push_back(info.path);
  }
  for (const std::string& removed : result.removed) result.bytes += bytes_below(fs, removed);
  if (command.mode == PruneMode::kOnlySay) return result;
  store.clear_leftovers();
  store.remove(pruned);
  return result;
}

}  // namespace mpt
