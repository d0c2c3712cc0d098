#include "checkpoint/checkpoint_saver.h"

#include <algorithm>

#include <fmt/format.h>

#include "checkpoint/checkpoint_files.h"
#include "core/check.h"
#include "core/io/safetensors.h"
#include "core/progress.h"

namespace mpt {

struct CheckpointWriter::Job {
  std::string path, name;
  PartList list;
  std::vector<Tensor> blocks;                  // of the resting parts
  std::vector<std::vector<std::byte>> copies;  // of the changing ones
  std::promise<void> read;
  bool read_is_told = false;

  void tell_read() {
    if (!read_is_told) read.set_value();
    read_is_told = true;
  }
};

namespace {

std::vector<std::byte> copy_of(const TensorPart& part, Device& device) {
  std::vector<std::byte> copy(static_cast<size_t>(bytes_of(std::span(&part, 1))));
  std::byte* target = copy.data();
  for (const Tensor& block : blocks_of(part)) {
    device.download(block, target);
    target += block.elements() * size_of(block.dtype);
  }
  return copy;
}

}  // namespace

CheckpointWriter::CheckpointWriter(FileSystem& fs, Device& device) : fs_(fs), device_(device) {}
CheckpointWriter::~CheckpointWriter() { give_up(); }

void CheckpointWriter::begin(FileToWrite file) {
  check(!busy(), "{}: cannot begin while another file is being written", file.name);
  if (!reader_) reader_ = device_.make_reader();
  auto job = std::make_shared<Job>();
  job->path = file.directory + "/" + file.name;
  job->name = file.name;
  std::vector<TensorPart> parts = file.resting;
  parts.insert(parts.end(), file.changing.begin(), file.changing.end());
  job->list = list_of(parts);
  for (const TensorPart& part : file.resting)
    for (const Tensor& block : blocks_of(part)) job->blocks.push_back(block);
  device_.synchronize();
  for (const TensorPart& part : file.changing) job->copies.push_back(copy_of(part, device_));
  reader_->begin();
  to_write_ = bytes_of(parts);
  written_ = 0;
  giving_up_ = false;
  read_ = job->read.get_future();
  const auto work = [this, job] { return write(*job); };
  if (reader_->beside()) {
    file_ = std::async(std::launch::async, work);
  } else {
    std::packaged_task<CheckpointFile()> task(work);
    file_ = task.get_future();
    task();
  }
}

CheckpointFile CheckpointWriter::write(Job& job) {
  CheckpointFile file;
  file.name = job.name;
  file.stretches = job.list.stretches;
  try {
    SafetensorsWriter out(fs_, job.path, job.list.entries);
    write_parts(job, out);
    const auto [bytes, hash] = out.finish();
    file.bytes = bytes;
    file.hash = hash;
  } catch (...) {
    job.tell_read();
    remove_quietly(fs_, job.path);  // frees space on a full disk
    throw;
  }
  return file;
}

void CheckpointWriter::write_parts(Job& job, SafetensorsWriter& out) {
  const auto append = [&](std::span<const std::byte> bytes) {
    if (giving_up_) throw error("{}: write cancelled", job.path);
    out.append(bytes);
    written_ += std::ssize(bytes);
  };
  if (job.blocks.empty()) job.tell_read();
  size_t taken = 0;
  reader_->read(job.blocks, [&](std::span<const std::byte> bytes) {
    if (++taken == job.blocks.size()) job.tell_read();
    append(bytes);
  });
  for (const std::vector<std::byte>& copy : job.copies) append(copy);
}

void CheckpointWriter::wait_until_read() {
  if (read_.valid()) read_.wait();
}

bool CheckpointWriter::wait_for(std::chrono::milliseconds time) const {
  return busy() && file_.wait_for(time) == std::future_status::ready;
}

CheckpointFile CheckpointWriter::wait() {
  check(busy(), "waiting for a file, but none is being written");
  return file_.get();
}

void CheckpointWriter::give_up() noexcept {
  if (!busy()) return;
  giving_up_ = true;
  file_.wait();
  file_ = {};
}

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
    note_failure();  // reported to the others by the next collective call
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

// Collects finished work of this rank and returns its stage.
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

// All files are durable: sends their descriptions to rank 0, which starts the commit.
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
