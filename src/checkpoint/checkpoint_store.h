// The checkpoints of a run: saving them so that a crash at any moment loses none that was committed, finding
// the newest good one, and removing old ones.
//
//   checkpoints/step_00001000            committed
//               step_00001500.tmp        being written, or left by a crash
//               step_00000500.deleting   being removed, or left by a crash
//               step_00001000.old        being replaced: counts as committed while step_00001000 is missing
//               step_00002000.abandoned  of a continuation that the run went back behind; never touched again
//
// A checkpoint is written under its .tmp name, synced, and committed by a rename. Saving a step that is there
// already replaces it; one of those two is always there. Saving a step smaller than committed ones means that
// the run was resumed from an earlier one: the later ones are set aside as .abandoned, since "newest" would
// otherwise go back to them. One run at a time may save (see RunLock): its rank 0 prepares and commits,
// the others only write their files into what it prepared (see checkpoint_saver.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint_files.h"
#include "comm/communicator.h"

namespace mpt {

// What pruning leaves: the newest `keep_last` and every step that is a multiple of `keep_every_steps`.
struct Retention {
  int64_t keep_last = 3;         // at least 1
  int64_t keep_every_steps = 0;  // 0: no others
};

// The steps to remove, ascending; never the largest. `steps` are distinct, in any order.
std::vector<int64_t> steps_to_prune(std::vector<int64_t> steps, const Retention& retention);

// The step of a committed checkpoint's directory by its name, "step_00001000".
std::optional<int64_t> step_of_checkpoint(std::string_view name);

struct CheckpointInfo {
  int64_t step = 0;
  std::string path;
};

class CheckpointStore {
 public:
  // The directory need not exist. A retention that keeps nothing is an Error.
  CheckpointStore(FileSystem& fs, std::string directory, Retention retention);

  // Has committed when it returns, and then prunes: a failure of that is only logged. If it throws,
  // everything committed up to this step is still there.
  void save(const TrainState& state, std::span<const NamedTensor> tensors, Device& device);

  // The same in steps. prepare() finishes or undoes what a crashed save left and makes the directory for the
  // files of this step, which it returns; commit() seals the files there and makes them the checkpoint;
  // abandon() removes the directory, quietly.
  std::string prepare(int64_t step);
  void commit(const TrainState& state, std::span<const CheckpointFile> files);
  void abandon(int64_t step);
  [[nodiscard]] std::string staging_directory(int64_t step) const;
  [[nodiscard]] std::string path_of(int64_t step) const;  // once it is committed
  [[nodiscard]] FileSystem& file_system() const { return fs_; }

  // What crashed saves left that clear_leftovers() removes; what it puts back is not among them.
  [[nodiscard]] std::vector<std::string> leftovers() const;
  // Finishes or undoes what a crashed save had begun.
  void clear_leftovers();
  // Removes the checkpoints of these steps, all or, after a crash, none that looks committed.
  void remove(const std::vector<int64_t>& steps);

  // Committed ones by ascending step, their content not looked at. Empty if the directory is missing.
  [[nodiscard]] std::vector<CheckpointInfo> list() const;

  // Path of the newest that verifies. Logs a warning for each newer one, with what is wrong with it. Of
  // several ranks each reads a share of the files, and all are answered the same. Collective.
  [[nodiscard]] std::optional<std::string> latest_good(Communicator& ranks = Communicator::single()) const;

  TrainState load(const std::string& path, std::span<const NamedTensor> tensors, Device& device) const;
  [[nodiscard]] TrainState read_state(const std::string& path) const;

 private:
  void set_aside_after(int64_t step);
  void replace(const std::string& staging, const std::string& target);
  void check_is_seen(const std::string& path, int64_t bytes) const;
  void prune();

  FileSystem& fs_;
  std::string directory_;
  Retention retention_;
};

// verify_checkpoint() by all ranks, each a share of the files: throws on all what is wrong. Collective.
TrainState verify_together(FileSystem& fs, const std::string& path, Communicator& ranks);

// Keeps two processes from training in one directory: an advisory lock on its file ".lock", released when the
// process ends, however it ends. The file stays, with the process number of its last holder.

class RunLock {
 public:
  // The directory exists. An Error that names the holder if another process, or another RunLock, has the
  // lock.
  explicit RunLock(const std::string& directory);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace mpt
