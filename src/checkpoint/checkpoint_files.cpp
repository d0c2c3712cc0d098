#include "checkpoint/checkpoint_files.h"

#include <algorithm>
#include <ctime>
#include <set>

#include <fmt/chrono.h>

#include "checkpoint/checkpoint_parts.h"
#include "checkpoint/checkpoint_state.h"
#include "core/check.h"
#include "core/progress.h"

namespace mpt {
namespace {

CheckpointRecord read_record(FileSystem& fs, const std::string& directory) {
  if (!fs.is_directory(directory))
    throw error("{}: not a checkpoint: no such directory", directory);
  return read_checkpoint_record(fs, directory);
}

void check_size(FileSystem& fs, const std::string& directory, const CheckpointFile& file) {
  const std::string path = in_directory(directory, file.name);
  if (!has_optional_file(fs, path))
    throw error("{} is missing; the checkpoint is incomplete", path);
  const int64_t bytes = fs.file_size(path);
  if (bytes != file.bytes)
    throw error("{} has {} bytes, but {} were saved", path, bytes, file.bytes);
}

// Hashes every `ranks`-th file, starting with file `rank`; rank 0 shows progress.
void check_hashes(FileSystem& fs, const std::string& directory, const CheckpointRecord& record,
                  int64_t rank, int64_t ranks) {
  std::vector<CheckpointFile> share;
  int64_t total = 0, done = 0;
  for (auto i = rank; i < std::ssize(record.files); i += ranks) {
    share.push_back(record.files[static_cast<size_t>(i)]);
    total += share.back().bytes;
  }
  Progress progress({.label = "verify checkpoint", .total = total});
  const auto advance = [&](int64_t bytes) {
    done += bytes;
    if (rank == 0) progress.update(done);
  };
  for (const CheckpointFile& file : share) {
    const std::string path = in_directory(directory, file.name),
                      hash = hash_file(fs, path, advance);
    if (hash != file.hash)
      throw error("{} was altered: its hash is {}, but {} was saved", path, hash, file.hash);
  }
}

// Checks hashes first: a hash mismatch gives a clearer message than a corrupt header.
TrainState verified(FileSystem& fs, const std::string& directory, int64_t rank, int64_t ranks) {
  const CheckpointRecord record = read_record(fs, directory);
  for (const CheckpointFile& file : record.files) check_size(fs, directory, file);
  if (ranks > 0) check_hashes(fs, directory, record, rank, ranks);
  const StoredTensors complete(fs, directory, record.files);
  return record.state;
}

// Whether a checkpoint may hold tensors that were not requested.
enum class Others : uint8_t { kRefused, kLeft };

// Several parts of one tensor may be requested, but no element twice.
void check_distinct(std::span<const TensorPart> parts) {
  std::map<std::string_view, std::vector<const TensorPart*>> by_name;
  for (const TensorPart& part : parts) by_name[part.whole.name].push_back(&part);
  for (auto& [name, same] : by_name) {
    std::sort(same.begin(), same.end(),
              [](const TensorPart* a, const TensorPart* b) { return a->first < b->first; });
    for (size_t i = 1; i < same.size(); ++i)
      check(same[i - 1]->first + same[i - 1]->count <= same[i]->first && !same[i]->is_whole(),
            "tensor '{}' is requested twice", name);
  }
}

// Checks that every requested tensor exists as this run needs it, and applies `others` to the rest.
void check_tensors(const StoredTensors& stored, std::span<const TensorPart> parts, Others others) {
  std::set<std::string_view> unused;
  for (const auto& [name, at] : stored.tensors()) unused.insert(name);
  for (const TensorPart& part : parts) {
    static_cast<void>(stored.at(part));
    unused.erase(part.whole.name);
  }
  check_distinct(parts);
  if (unused.empty() || others == Others::kLeft) return;
  const StoredTensors::Stored& first = stored.tensors().find(*unused.begin())->second;
  throw error("{}: holds tensor '{}' ({}), which this run does not have{}",
              first.pieces.front().file->path(), first.info.name, first.info.description(),
              unused.size() > 1 ? fmt::format(", and {} more", unused.size() - 1) : "");
}

void upload_parts(const StoredTensors& stored, std::span<const TensorPart> parts, Device& device) {
  std::vector<std::byte> staging;
  Progress progress({.label = "load checkpoint", .total = bytes_of(parts)});
  int64_t done = 0;
  for (const TensorPart& part : parts) {
    const StoredTensors::Stored& from = stored.at(part);
    int64_t first = part.first;
    for (const Tensor& block : blocks_of(part)) {
      const int64_t bytes = block.elements() * size_of(block.dtype);
      if (std::ssize(staging) < bytes) staging.resize(static_cast<size_t>(bytes));
      StoredTensors::read(from, first, std::span(staging).first(static_cast<size_t>(bytes)));
      device.upload(staging.data(), block);
      first += block.elements();
      progress.update(done += bytes);
    }
  }
}

TrainState load_parts(FileSystem& fs, const std::string& directory,
                      std::span<const TensorPart> parts, Others others, Device& device) {
  CheckpointRecord record = read_record(fs, directory);
  for (const CheckpointFile& file : record.files) check_size(fs, directory, file);
  const StoredTensors stored(fs, directory, record.files);
  check_tensors(stored, parts, others);
  upload_parts(stored, parts, device);
  return record.state;
}

}  // namespace

std::string rank_file_name(int64_t rank, int64_t ranks) {
  return fmt::format("rank_{:05}_of_{:05}.safetensors", rank, ranks);
}

std::vector<TensorPart> whole_parts(std::span<const NamedTensor> tensors) {
  std::vector<TensorPart> parts;
  for (const NamedTensor& tensor : tensors) parts.push_back(whole_part(tensor));
  return parts;
}

void write_checkpoint_state(FileSystem& fs, const std::string& directory, const TrainState& state,
                            std::span<const CheckpointFile> files) {
  const CheckpointRecord record{
      .state = state,
      .files = {files.begin(), files.end()},
      .version = 0,
      .saved_at = fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)))};
  const auto file = fs.create(in_directory(directory, kStateName));
  file->append(bytes_of(checkpoint_record_text(record)));
  file->sync();
  file->close();
  fs.sync_directory(directory);
}

TrainState read_checkpoint_state(FileSystem& fs, const std::string& directory) {
  return read_record(fs, directory).state;
}

TrainState inspect_checkpoint(FileSystem& fs, const std::string& directory) {
  return verified(fs, directory, 0, 0);
}

TrainState verify_checkpoint(FileSystem& fs, const std::string& directory) {
  return verified(fs, directory, 0, 1);
}

TrainState verify_share_of_checkpoint(FileSystem& fs, const std::string& directory, int64_t rank,
                                      int64_t ranks) {
  check(0 <= rank && rank < ranks, "rank {} of {} is out of range", rank, ranks);
  return verified(fs, directory, rank, ranks);
}

TrainState load_checkpoint(FileSystem& fs, const std::string& directory,
                           std::span<const NamedTensor> tensors, Device& device) {
  verify_checkpoint(fs, directory);
  return load_verified_checkpoint(fs, directory, whole_parts(tensors), device);
}

TrainState load_part_of_checkpoint(FileSystem& fs, const std::string& directory,
                                   std::span<const NamedTensor> tensors, Device& device) {
  verify_checkpoint(fs, directory);
  return load_part_of_verified_checkpoint(fs, directory, whole_parts(tensors), device);
}

TrainState load_verified_checkpoint(FileSystem& fs, const std::string& directory,
                                    std::span<const TensorPart> parts, Device& device) {
  return load_parts(fs, directory, parts, Others::kRefused, device);
}

TrainState load_part_of_verified_checkpoint(FileSystem& fs, const std::string& directory,
                                            std::span<const TensorPart> parts, Device& device) {
  return load_parts(fs, directory, parts, Others::kLeft, device);
}

}  // namespace mpt
