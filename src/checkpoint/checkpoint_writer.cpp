#include "checkpoint/checkpoint_writer.h"

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_parts.h"
#include "checkpoint/checkpoint_state.h"
#include "core/io/safetensors.h"

namespace mpt {

struct CheckpointWriter::Job {
  std::string path, name;
  PartList list;
  std::vector<Tensor> blocks;                  // for resting parts
  std::vector<std::vector<std::byte>> copies;  // for changing parts
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
  file.spans = job.list.spans;
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

}  // namespace mpt
