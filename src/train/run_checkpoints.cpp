#include "train/run_checkpoints.h"

#include <chrono>
#include <utility>

#include <spdlog/spdlog.h>

#include "config/run_paths.h"
#include "core/io/file_system.h"

namespace mpt {

RunCheckpoints::RunCheckpoints(const RunConfig& config, Device& device, FileSystem& fs,
                               Communicator& ranks, int64_t total_steps)
    : ranks_(ranks),
      directory_(checkpoint_directory(config)),
      has_command_(!config.checkpoint.on_commit.empty()),
      total_steps_(total_steps),
      store_(fs, directory_,
             {.keep_last = config.checkpoint.keep_last,
              .keep_every_steps = config.checkpoint.keep_every_steps}),
      saver_(store_, device, ranks),
      command_(config.checkpoint.on_commit, run_directory(config) + "/on_commit.log") {}

void RunCheckpoints::begin(StateToSave what) {
  const int64_t step = what.state.step;
  saver_.begin(std::move(what));
  last_step_ = step;
}

void RunCheckpoints::poll(int64_t step) {
  report(saver_.poll(), step);
  if (!ranks_.is_root()) return;
  command_.poll();
  store_.hold(command_.steps_in_use());  // keep a checkpoint that a command is reading
}

void RunCheckpoints::finish_save(int64_t step) { report(saver_.finish(), step); }

void RunCheckpoints::report(const std::optional<SaveReport>& report, int64_t step) {
  if (!report) return;
  last_ = store_.path_of(report->step);
  if (!ranks_.is_root()) return;
  command_.committed(report->step, last_);
  store_.hold(command_.steps_in_use());
  spdlog::info("step {:>6}/{} | saved step {}: {}", step, total_steps_, report->step,
               report->text());
}

// Informs the other ranks that rank 0 is still waiting, possibly for longer than
// distributed.timeout_seconds.
void RunCheckpoints::finish_command() {
  using namespace std::chrono_literals;
  if (!has_command_) return;
  const auto waits = [&] { return ranks_.is_root() && !command_.finish(200ms) ? 1 : 0; };
  while (ranks_.gather_numbers(waits()).front() != 0) continue;
  if (!ranks_.is_root()) return;
  store_.hold({});
  store_.prune();
}

void RunCheckpoints::loaded(const std::string& checkpoint, int64_t step) {
  last_ = checkpoint;
  last_step_ = step;
}

void RunCheckpoints::began_from(const std::string& checkpoint, int64_t step) {
  if (parent_directory(checkpoint) == directory_) return;
  from_elsewhere_ = checkpoint;
  step_from_elsewhere_ = step;
}

std::optional<std::string> RunCheckpoints::to_roll_back_to() {
  std::optional<std::string> own = store_.latest_good(ranks_, last_step_, step_from_elsewhere_);
  if (own || from_elsewhere_.empty()) return own;
  return from_elsewhere_;
}

}  // namespace mpt
