#include "checkpoint/checkpoint_saver.h"

#include <algorithm>

#include <fmt/format.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_parts.h"
#include "checkpoint/checkpoint_state.h"
#include "core/check.h"
#include "core/io/safetensors.h"
#include "core/progress.h"
#include "core/text/units.h"

namespace mpt {
namespace {

bool is_ready(const std::future<void>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// Adds its lifetime to `seconds`.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += seconds_since(start_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

std::string SaveReport::text() const {
  return fmt::format("{} in {:.1f}s ({:.2f} GB/s), training paused {:.3f} s",
                     format_bytes(double(bytes)), seconds,
                     seconds > 0 ? double(bytes) * 1e-9 / seconds : 0.0, seconds_paused);
}

CheckpointSaver::CheckpointSaver(CheckpointStore& store, Device& device, Communicator& ranks)
    : store_(store), ranks_(ranks), writer_(store.file_system(), device) {}

CheckpointSaver::~CheckpointSaver() {
  if (!busy_) return;
  writer_.give_up();
  if (commit_.valid())
    commit_.wait();
  else if (ranks_.is_root())
    store_.abandon(state_.step);
}

void CheckpointSaver::begin(StateToSave what) {
  check(!busy_, "save of step {} begun before that of step {} finished", what.state.step,
        state_.step);
  report_ = {.step = what.state.step};
  const Stopwatch paused(report_.seconds_paused);
  begun_ = Clock::now();
  ranks_.together([&] {
    if (ranks_.is_root()) store_.prepare(what.state.step);
  });
  state_ = std::move(what.state);
  file_.reset();
  exchanged_ = committed_ = false;
  failure_.clear();
  bug_ = nullptr;
  busy_ = true;
  try {
    writer_.begin({.directory = store_.staging_directory(state_.step),
                   .name = rank_file_name(ranks_.rank(), ranks_.size()),
                   .resting = std::move(what.resting),
                   .changing = std::move(what.changing)});
  } catch (...) {
    note_failure();  // reported on the other ranks by the next collective call
  }
}

void CheckpointSaver::before_update() {
  if (!busy_) return;
  const Stopwatch paused(report_.seconds_paused);
  writer_.wait_until_read();
}

// Records the exception being handled.
void CheckpointSaver::note_failure() {
  try {
    throw;
  } catch (const Error& caught) {
    failure_ = caught.what();
  } catch (const std::exception& caught) {
    failure_ = caught.what();
    bug_ = std::current_exception();
  }
}

// Collects this rank's finished work and returns its stage.
CheckpointSaver::Stage CheckpointSaver::advance() {
  try {
    if (writer_.busy() && writer_.done()) file_ = writer_.wait();
    if (commit_.valid() && is_ready(commit_)) {
      commit_.get();
      committed_ = true;
    }
  } catch (...) {
    note_failure();
  }
  if (!failure_.empty()) return Stage::kFailed;
  if (committed_) return Stage::kCommitted;
  return file_ ? Stage::kWritten : Stage::kWriting;
}

std::optional<SaveReport> CheckpointSaver::poll() {
  if (!busy_) return std::nullopt;
  const std::vector<int64_t> stages = ranks_.gather_numbers(static_cast<int64_t>(advance()));
  const auto count = [&](Stage stage) {
    return std::count(stages.begin(), stages.end(), int64_t(stage));
  };
  if (count(Stage::kFailed) > 0) fail();
  if (!exchanged_ && count(Stage::kWritten) == ranks_.size()) exchange_files();
  if (count(Stage::kCommitted) == 0) return std::nullopt;
  report_.seconds = seconds_since(begun_);
  end();
  return report_;
}

// Call when all files are durable. Sends their descriptions to rank 0, which starts the commit.
void CheckpointSaver::exchange_files() {
  exchanged_ = true;
  const std::vector<std::string> texts = ranks_.gather_texts(checkpoint_file_text(*file_));
  const std::vector<int64_t> paused =
      ranks_.gather_numbers(static_cast<int64_t>(report_.seconds_paused * 1e9));
  report_.seconds_paused = double(*std::max_element(paused.begin(), paused.end())) * 1e-9;
  std::vector<CheckpointFile> files;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    files.push_back(parse_checkpoint_file(fmt::format("file of rank {}", rank), texts[rank]));
    report_.bytes += files.back().bytes;
  }
  if (ranks_.is_root())
    commit_ = std::async(std::launch::async,
                         [this, files = std::move(files)] { store_.commit(state_, files); });
}

// All ranks stop writing before rank 0 removes the staging directory.
void CheckpointSaver::fail() {
  writer_.give_up();
  if (commit_.valid()) commit_.wait();
  const std::string mine = failure_.empty() || ranks_.is_single()
                               ? failure_
                               : fmt::format("rank {}: {}", ranks_.rank(), failure_);
  const std::vector<std::string> failures = ranks_.gather_texts(mine);
  if (ranks_.is_root()) store_.abandon(state_.step);
  const int64_t step = state_.step;
  end();
  if (bug_) std::rethrow_exception(bug_);
  for (const std::string& text : failures)
    if (!text.empty()) throw error("the checkpoint of step {} could not be saved: {}", step, text);
  throw LogicError("a save failed, but no rank reported a failure");
}

void CheckpointSaver::end() {
  busy_ = false;
  commit_ = {};
  state_ = {};
}

std::optional<SaveReport> CheckpointSaver::finish() {
  if (!busy_) return std::nullopt;
  const auto start = Clock::now();
  Progress progress({.label = "write checkpoint", .total = writer_.bytes_to_write()});
  for (;;) {
    if (std::optional<SaveReport> report = poll()) {
      report->seconds_paused += seconds_since(start);
      return report;
    }
    wait_a_moment();
    if (ranks_.is_root()) progress.update(writer_.bytes_written());
  }
}

// Waits for this rank's own work; poll() waits for other ranks.
void CheckpointSaver::wait_a_moment() {
  static constexpr auto kMoment = std::chrono::milliseconds(50);
  if (commit_.valid())
    commit_.wait_for(kMoment);
  else if (writer_.busy())
    writer_.wait_for(kMoment);
}

}  // namespace mpt
