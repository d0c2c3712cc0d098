// The checkpoints of a run: crash-safe saving, finding the newest good one, removing old ones. A
// crash at any moment loses no committed checkpoint.
//
//   checkpoints/step_00001000            committed
//               step_00001500.tmp        being written, or left by a crash
//               step_00000500.deleting   being removed, or left by a crash
//               step_00001000.old        being replaced; committed if step_00001000 is missing
//               step_00002000.abandoned  of a run that is continued from an earlier step; never
//                                        touched again
//
// A checkpoint is written under its .tmp name, synced, and committed by a rename. Saving an
// existing step replaces it; the old or the new checkpoint exists at every moment. A run that is
// resumed from an earlier step sets later checkpoints aside, and so does saving a step below them:
// they are renamed to .abandoned, so that "newest" does not pick them. Only one run may save at a
// time (see DirectoryLock). Its rank 0 prepares and commits; other ranks only write their files
// into the prepared directory (see checkpoint_saver.h).
#pragma once

#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint_state.h"
#include "core/named_tensor.h"
#include "ranks/communicator.h"

namespace mpt {

// Which checkpoints pruning keeps: the newest `keep_last` and every step that is a multiple of
// `keep_every_steps`.
struct Retention {
  int64_t keep_last = 3;         // at least 1
  int64_t keep_every_steps = 0;  // 0: none
};

// The steps to remove, ascending; never the largest. `steps` are distinct, in any order.
std::vector<int64_t> steps_to_prune(std::vector<int64_t> steps, const Retention& retention);

// Parses the step from the name of a committed checkpoint's directory, "step_00001000".
std::optional<int64_t> step_of_checkpoint(std::string_view name);

// A run in progress may remove what another process has just found. That process repeats the search
// at most this many times, so it terminates.
inline constexpr int kMostLooks = 16;

struct CheckpointInfo {
  int64_t step = 0;
  std::string path;
  bool operator==(const CheckpointInfo&) const = default;
};

class CheckpointStore {
 public:
  // `fs` must outlive this object. The directory need not exist. Throws Error if keep_last < 1 or
  // keep_every_steps < 0.
  CheckpointStore(FileSystem& fs, std::string directory, Retention retention);

  // Commits the checkpoint, then prunes; a failed prune is only logged. If it throws, all
  // checkpoints committed up to this step still exist.
  void save(const TrainState& state, std::span<const NamedTensor> tensors, Device& device);

  // save() in stages. prepare() finishes or undoes a crashed save, creates the staging directory of
  // this step and returns it. commit() writes state.json there, renames the directory to the
  // checkpoint and prunes. abandon() removes the staging directory and ignores failures.
  std::string prepare(int64_t step);
  void commit(const TrainState& state, std::span<const CheckpointFile> files);
  void abandon(int64_t step);
  [[nodiscard]] std::string staging_directory(int64_t step) const;
  [[nodiscard]] std::string path_of(int64_t step) const;  // after commit()
  [[nodiscard]] FileSystem& file_system() const { return fs_; }

  // Directories of crashed saves that clear_leftovers() would remove; does not list those that it
  // would restore.
  [[nodiscard]] std::vector<std::string> leftovers() const;
  // Finishes or undoes a crashed save.
  void clear_leftovers();
  // Steps that pruning keeps from now on, in addition to those of the retention. May be called
  // while another thread commits.
  void hold(std::vector<int64_t> steps);
  // Renames the checkpoints of later steps to .abandoned.
  void set_aside_after(int64_t step);
  // Names of the checkpoints set aside.
  [[nodiscard]] std::vector<std::string> set_aside() const;
  // Prunes as after a commit.
  void prune();
  // Removes the checkpoints of these steps. A crash leaves no half-removed checkpoint that looks
  // committed.
  void remove(const std::vector<int64_t>& steps);

  // Committed checkpoints by ascending step; their contents are not read. Empty if the directory is
  // missing.
  [[nodiscard]] std::vector<CheckpointInfo> list() const;

  // Returns the path of the newest checkpoint with after_step < step <= last_step that verifies.
  // Logs a warning with the defect of each newer one. Each rank verifies a share of the files; all
  // get the same answer. Collective.
  [[nodiscard]] std::optional<std::string> latest_good(
      Communicator& ranks = Communicator::single(),
      int64_t last_step = std::numeric_limits<int64_t>::max(), int64_t after_step = -1) const;

  TrainState load(const std::string& path, std::span<const NamedTensor> tensors,
                  Device& device) const;
  [[nodiscard]] TrainState read_state(const std::string& path) const;

 private:
  [[nodiscard]] std::vector<CheckpointInfo> committed_among(
      const std::vector<std::string>& names) const;
  void replace(const std::string& staging, const std::string& target);
  void restore_replaced();
  void mark_for_removal(const std::vector<int64_t>& steps);
  void remove_marked(const std::vector<int64_t>& steps);
  void check_is_seen(const std::string& path, int64_t bytes) const;

  FileSystem& fs_;
  std::string directory_;
  Retention retention_;
  std::mutex held_mutex_;
  std::vector<int64_t> held_;
};

// The directory that holds checkpoints: the path itself, or the one in a run's directory.
std::string directory_of_checkpoints(FileSystem& fs, const std::string& path);

// verify_checkpoint() with the files divided among the ranks; a defect is thrown on every rank.
// Collective.
TrainState verify_together(FileSystem& fs, const std::string& path, Communicator& ranks);

}  // namespace mpt
