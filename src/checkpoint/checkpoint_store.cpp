#include "checkpoint/checkpoint_store.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>
#include <string_view>

#include <spdlog/spdlog.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_saver.h"
#include "core/check.h"
#include "core/io/run_paths.h"

namespace mpt {
namespace {

constexpr std::string_view kWriting = ".tmp";
constexpr std::string_view kDeleting = ".deleting";
constexpr std::string_view kReplaced = ".old";
constexpr std::string_view kAbandoned = ".abandoned";

std::string name_of_step(int64_t step) { return fmt::format("step_{:08}", step); }

// The step of a name that is exactly "step_<digits><suffix>", as spelled by name_of_step.
std::optional<int64_t> step_of_name(std::string_view name, std::string_view suffix) {
  constexpr std::string_view kPrefix = "step_";
  if (!name.starts_with(kPrefix) || !name.ends_with(suffix)) return std::nullopt;
  const std::string_view stem = name.substr(0, name.size() - suffix.size());
  if (stem.size() <= kPrefix.size()) return std::nullopt;
  int64_t step = -1;
  std::from_chars(stem.data() + kPrefix.size(), stem.data() + stem.size(), step);
  if (step < 0 || name_of_step(step) != stem) return std::nullopt;
  return step;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

std::optional<int64_t> step_of_checkpoint(std::string_view name) { return step_of_name(name, ""); }

std::vector<int64_t> steps_to_prune(std::vector<int64_t> steps, const Retention& retention) {
  std::sort(steps.begin(), steps.end());
  const auto count = static_cast<int64_t>(steps.size());
  const int64_t kept_last =
      std::clamp<int64_t>(retention.keep_last, 1, std::max<int64_t>(1, count));
  steps.resize(static_cast<size_t>(std::max<int64_t>(0, count - kept_last)));
  const int64_t every = retention.keep_every_steps;
  std::erase_if(steps, [every](int64_t step) { return every > 0 && step % every == 0; });
  return steps;
}

CheckpointStore::CheckpointStore(FileSystem& fs, std::string directory, Retention retention)
    : fs_(fs), directory_(without_slashes(std::move(directory))), retention_(retention) {
  if (retention_.keep_last < 1)
    throw error("keep_last is {}; expected at least 1", retention_.keep_last);
  if (retention_.keep_every_steps < 0) {
    throw error("keep_every_steps is {}; expected a number of steps, or 0 for none",
                retention_.keep_every_steps);
  }
}

std::string CheckpointStore::path_of(int64_t step) const {
  return directory_ + "/" + name_of_step(step);
}

std::string CheckpointStore::staging_directory(int64_t step) const {
  return path_of(step) + std::string(kWriting);
}

void CheckpointStore::save(const TrainState& state, std::span<const NamedTensor> tensors,
                           Device& device) {
  CheckpointSaver saver(*this, device);
  saver.begin({.state = state, .resting = whole_parts(tensors)});
  saver.finish();
}

std::string CheckpointStore::prepare(int64_t step) {
  fs_.create_directories(directory_);
  const std::string staging = staging_directory(step);
  fs_.remove_tree(staging);
  // A leftover that cannot be removed now does not block any save.
  for (const std::string& path : leftovers()) remove_quietly(fs_, path);
  restore_replaced();
  try {
    fs_.create_directories(staging);
  } catch (...) {
    remove_quietly(fs_, staging);
    throw;
  }
  return staging;
}

void CheckpointStore::commit(const TrainState& state, std::span<const CheckpointFile> files) {
  const std::string staging = staging_directory(state.step);
  try {
    for (const CheckpointFile& file : files) check_is_seen(staging + "/" + file.name, file.bytes);
    write_checkpoint_state(fs_, staging, state, files);
    set_aside_after(state.step);
    replace(staging, path_of(state.step));
  } catch (...) {
    remove_quietly(fs_, staging);  // makes room on a full disk
    throw;
  }
  prune();
}

// Detects an output_dir that is not shared: another rank may have written to a different machine's
// disk.
void CheckpointStore::check_is_seen(const std::string& path, int64_t bytes) const {
  if (!fs_.exists(path))
    throw error(
        "{}: written by another rank, but not visible to this one: output_dir must be the same "
        "directory for all ranks",
        path);
  const int64_t found = fs_.file_size(path);
  if (found != bytes) throw error("{} has {} bytes, but {} were written", path, found, bytes);
}

void CheckpointStore::abandon(int64_t step) { remove_quietly(fs_, staging_directory(step)); }

std::vector<std::string> CheckpointStore::leftovers() const {
  std::vector<std::string> paths;
  for (const std::string& name : fs_.list_directory(directory_)) {
    const std::optional<int64_t> replaced = step_of_name(name, kReplaced);
    if (step_of_name(name, kWriting) || step_of_name(name, kDeleting) ||
        (replaced && fs_.exists(path_of(*replaced))))
      paths.push_back(directory_ + "/" + name);
  }
  return paths;
}

void CheckpointStore::clear_leftovers() {
  for (const std::string& path : leftovers()) fs_.remove_tree(path);
  restore_replaced();
}

// Restores checkpoints whose replacement was not committed.
void CheckpointStore::restore_replaced() {
  for (const std::string& name : fs_.list_directory(directory_))
    if (const std::optional<int64_t> replaced = step_of_name(name, kReplaced);
        replaced && !fs_.exists(path_of(*replaced)))
      fs_.rename(directory_ + "/" + name, path_of(*replaced));
}

void CheckpointStore::set_aside_after(int64_t step) {
  for (const CheckpointInfo& later : list()) {
    if (later.step <= step) continue;
    const std::string base = later.path + std::string(kAbandoned);
    std::string target = base;
    for (int64_t n = 2; fs_.exists(target); ++n) target = fmt::format("{}.{}", base, n);
    spdlog::warn("{}: renamed to {}, since the run continues from an earlier step", later.path,
                 target);
    fs_.rename(later.path, target);
  }
}

std::vector<std::string> CheckpointStore::set_aside() const {
  std::vector<std::string> paths;
  if (!fs_.exists(directory_)) return paths;
  for (const std::string& name : fs_.list_directory(directory_)) {
    const size_t suffix = name.find(kAbandoned);
    if (suffix != std::string::npos && step_of_name(name.substr(0, suffix), ""))
      paths.push_back(directory_ + "/" + name);
  }
  std::ranges::sort(paths);
  return paths;
}

void CheckpointStore::replace(const std::string& staging, const std::string& target) {
  const std::string replaced = target + std::string(kReplaced);
  const bool replaces = fs_.exists(target);
  if (replaces && !fs_.is_directory(target))
    throw error("{}: exists and is not a directory", target);
  if (replaces) fs_.rename(target, replaced);
  fs_.rename(staging, target);
  fs_.sync_directory(directory_);
  if (replaces) remove_quietly(fs_, replaced);
}

// Renames before deleting, so a crash leaves no partial directory that looks committed.
void CheckpointStore::remove(const std::vector<int64_t>& steps) {
  mark_for_removal(steps);
  remove_marked(steps);
}

void CheckpointStore::mark_for_removal(const std::vector<int64_t>& steps) {
  for (const int64_t step : steps)
    fs_.rename(path_of(step), path_of(step) + std::string(kDeleting));
}

void CheckpointStore::remove_marked(const std::vector<int64_t>& steps) {
  if (steps.empty()) return;
  fs_.sync_directory(directory_);
  for (const int64_t step : steps) fs_.remove_tree(path_of(step) + std::string(kDeleting));
}

void CheckpointStore::hold(std::vector<int64_t> steps) {
  const std::lock_guard lock(held_mutex_);
  held_ = std::move(steps);
}

void CheckpointStore::prune() {
  try {
    std::vector<int64_t> steps;
    for (const CheckpointInfo& info : list()) steps.push_back(info.step);
    std::vector<int64_t> pruned = steps_to_prune(steps, retention_);
    {
      const std::lock_guard lock(held_mutex_);
      std::erase_if(pruned,
                    [&](int64_t step) { return std::ranges::find(held_, step) != held_.end(); });
      mark_for_removal(pruned);
    }
    remove_marked(pruned);  // can take long; hold() does not wait for it
  } catch (const Error& failure) {
    spdlog::warn("old checkpoints could not be removed: {}", failure.what());
  }
}

// A run in progress may commit one checkpoint and remove another during the listing.
std::vector<CheckpointInfo> CheckpointStore::list() const {
  if (!fs_.exists(directory_)) return {};
  std::vector<std::string> names = fs_.list_directory(directory_);
  std::vector<CheckpointInfo> infos = committed_among(names);
  for (int look = 1; look < kMostLooks; ++look) {
    std::vector<std::string> now = fs_.list_directory(directory_);
    if (now == names) break;
    names = std::move(now);
    infos = committed_among(names);
  }
  return infos;
}

std::vector<CheckpointInfo> CheckpointStore::committed_among(
    const std::vector<std::string>& names) const {
  std::map<int64_t, std::string> found;
  for (const std::string& name : names) {
    const std::string path = directory_ + "/" + name;
    if (!fs_.is_directory(path)) continue;
    if (const auto step = step_of_name(name, "")) found[*step] = path;
    if (const auto step = step_of_name(name, kReplaced)) found.try_emplace(*step, path);
  }
  std::vector<CheckpointInfo> infos;
  for (const auto& [step, path] : found) infos.push_back({step, path});
  return infos;
}

// Rank 0 lists the checkpoints, since other ranks may see a new directory late or not at all.
std::optional<std::string> CheckpointStore::latest_good(Communicator& ranks, int64_t last_step,
                                                        int64_t after_step) const {
  std::string listed;
  ranks.together([&] {
    if (ranks.is_root())
      for (const CheckpointInfo& info : list())
        if (info.step > after_step && info.step <= last_step)
          listed += fmt::format("{} {}\n", info.step, info.path);
  });
  std::vector<std::string> lines = lines_of(ranks.gather_texts(listed).front());
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const size_t space = line->find(' ');
    const std::string path = line->substr(space + 1);
    try {
      const int64_t step = verify_together(fs_, path, ranks).step;
      if (std::to_string(step) == line->substr(0, space)) return path;
      throw error("it contains step {}", step);
    } catch (const Error& defect) {
      if (ranks.is_root() && fs_.exists(path))  // otherwise its run has removed it
        spdlog::warn("skipping checkpoint {}: {}", path, defect.what());
    }
  }
  return std::nullopt;
}

TrainState CheckpointStore::load(const std::string& path, std::span<const NamedTensor> tensors,
                                 Device& device) const {
  return load_checkpoint(fs_, path, tensors, device);
}

TrainState CheckpointStore::read_state(const std::string& path) const {
  return read_checkpoint_state(fs_, path);
}

std::string directory_of_checkpoints(FileSystem& fs, const std::string& path) {
  const std::string inner = in_directory(path, kCheckpoints);
  return has_optional_file(fs, inner) && fs.is_directory(inner) ? inner : path;
}

TrainState verify_together(FileSystem& fs, const std::string& path, Communicator& ranks) {
  TrainState state;
  ranks.together([&] { state = verify_share_of_checkpoint(fs, path, ranks.rank(), ranks.size()); });
  return state;
}

}  // namespace mpt
