#include "train/checkpoint_files.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "core/check.h"
#include "core/hash.h"
#include "core/progress.h"
#include "core/safetensors.h"
#include "train/checkpoint_state.h"

namespace mpt {
namespace {

constexpr int64_t kStagingBytes = int64_t{16} << 20;
constexpr int64_t kMaxStateBytes = int64_t{256} << 20;
constexpr const char* kStateName = "state.json";
constexpr const char* kTensorsName = "rank_00000_of_00001.safetensors";

std::string file_in(const std::string& directory, const std::string& name) { return directory + "/" + name; }

int64_t packed_bytes(const Tensor& tensor) { return tensor.elements() * size_of(tensor.dtype); }

StoredTensorInfo stored_info(const NamedTensor& named) {
  return {named.name, stored_type(named.tensor.dtype), named.shape()};
}

// Visits a tensor as views of at most kStagingBytes, in the order of its packed bytes.
template <class Visit>
void for_each_block(const Tensor& tensor, Visit visit) {
  if (tensor.elements() == 0) return;
  const int64_t capacity = kStagingBytes / size_of(tensor.dtype);
  const int64_t rows = std::max<int64_t>(1, capacity / tensor.cols);
  const int64_t cols = std::min(tensor.cols, capacity);  // below tensor.cols only where rows is 1
  for (int64_t row = 0; row < tensor.rows; row += rows) {
    const Tensor band = tensor.row_range(row, std::min(rows, tensor.rows - row));
    for (int64_t col = 0; col < tensor.cols; col += cols) {
      visit(band.columns(col, std::min(cols, tensor.cols - col)));
    }
  }
}

std::vector<std::byte> staging_for(std::span<const NamedTensor> tensors) {
  int64_t largest = 0;
  for (const NamedTensor& named : tensors) largest = std::max(largest, packed_bytes(named.tensor));
  return std::vector<std::byte>(static_cast<size_t>(std::min(largest, kStagingBytes)));
}

int64_t total_bytes(std::span<const NamedTensor> tensors) {
  int64_t total = 0;
  for (const NamedTensor& named : tensors) total += packed_bytes(named.tensor);
  return total;
}

CheckpointFile write_tensors(FileSystem& fs, const std::string& directory,
                             std::span<const NamedTensor> tensors, Device& device) {
  std::vector<StoredTensorInfo> infos;
  for (const NamedTensor& named : tensors) infos.push_back(stored_info(named));
  SafetensorsWriter writer(fs, file_in(directory, kTensorsName), infos);
  std::vector<std::byte> staging = staging_for(tensors);
  Progress progress({.label = "write checkpoint", .total = total_bytes(tensors)});
  int64_t done = 0;
  device.synchronize();
  for (const NamedTensor& named : tensors) {
    for_each_block(named.tensor, [&](const Tensor& block) {
      device.download(block, staging.data());
      writer.append(std::span(staging).first(static_cast<size_t>(packed_bytes(block))));
      progress.update(done += packed_bytes(block));
    });
  }
  const auto [bytes, hash] = writer.finish();
  return {.name = kTensorsName, .bytes = bytes, .hash = hash};
}

CheckpointRecord read_record(FileSystem& fs, const std::string& directory) {
  if (!fs.is_directory(directory)) throw error("{}: not a checkpoint: no such directory", directory);
  const std::string path = file_in(directory, kStateName);
  if (!fs.exists(path)) throw error("{}: not a checkpoint: {} is missing", directory, kStateName);
  return parse_checkpoint_record(path, fs.read_file(path, kMaxStateBytes));
}

void verify_file(FileSystem& fs, const std::string& directory, const CheckpointFile& file) {
  const std::string path = file_in(directory, file.name);
  if (!fs.exists(path)) throw error("{}: is missing; the checkpoint is incomplete", path);
  const int64_t bytes = fs.file_size(path);
  if (bytes != file.bytes) throw error("{}: has {} bytes, {} were saved", path, bytes, file.bytes);
  const std::string hash = hash_file(fs, path);
  if (hash != file.hash) throw error("{}: was altered: its hash is {}, {} was saved", path, hash, file.hash);
}

CheckpointRecord verified_record(FileSystem& fs, const std::string& directory) {
  CheckpointRecord record = read_record(fs, directory);
  for (const CheckpointFile& file : record.files) verify_file(fs, directory, file);
  return record;
}

// Where a tensor lies among a checkpoint's files.
struct StoredAt {
  const SafetensorsReader* file;
  const SafetensorsReader::Entry* entry;
};
using StoredTensors = std::map<std::string, StoredAt, std::less<>>;

StoredTensors stored_tensors(std::span<const std::unique_ptr<SafetensorsReader>> files) {
  StoredTensors stored;
  for (const auto& file : files) {
    for (const auto& entry : file->tensors()) {
      if (!stored.try_emplace(entry.name, StoredAt{file.get(), &entry}).second) {
        throw error("{}: tensor '{}' is in another file of the checkpoint as well", file->path(), entry.name);
      }
    }
  }
  return stored;
}

void check_tensor(const std::string& directory, const StoredTensors& stored, const NamedTensor& named) {
  const StoredTensorInfo wanted = stored_info(named);
  const auto found = stored.find(named.name);
  if (found == stored.end()) {
    throw error("{}: has no tensor '{}'; this run needs it as {}", directory, named.name,
                wanted.description());
  }
  const auto& [file, entry] = found->second;
  if (entry->type != wanted.type || entry->shape != wanted.shape) {
    throw error("{}: tensor '{}' is {}; this run needs {}", file->path(), named.name, entry->description(),
                wanted.description());
  }
}

// Whether a checkpoint may hold tensors that are not asked for.
enum class Others : uint8_t { kRefused, kLeft };

// Every tensor is there as this run needs it, and of others what `others` says.
void check_tensors(const std::string& directory, const StoredTensors& stored,
                   std::span<const NamedTensor> tensors, Others others) {
  StoredTensors unused = stored;
  for (const NamedTensor& named : tensors) {
    check_tensor(directory, stored, named);
    check(unused.erase(named.name) == 1, "tensor '{}' is to be loaded twice", named.name);
  }
  if (unused.empty() || others == Others::kLeft) return;
  const auto& [name, at] = *unused.begin();
  throw error("{}: holds tensor '{}' ({}), which this run does not have{}", at.file->path(), name,
              at.entry->description(),
              unused.size() > 1 ? fmt::format(", and {} more", unused.size() - 1) : "");
}

void upload_tensors(const StoredTensors& stored, std::span<const NamedTensor> tensors, Device& device) {
  std::vector<std::byte> staging = staging_for(tensors);
  Progress progress({.label = "load checkpoint", .total = total_bytes(tensors)});
  int64_t done = 0;
  for (const NamedTensor& named : tensors) {
    const auto& [file, entry] = stored.find(named.name)->second;
    int64_t first = 0;
    for_each_block(named.tensor, [&, file = file, entry = entry](const Tensor& block) {
      const int64_t bytes = packed_bytes(block);
      file->read(*entry, first, std::span(staging).first(static_cast<size_t>(bytes)));
      device.upload(staging.data(), block);
      first += bytes;
      progress.update(done += bytes);
    });
  }
}

TrainState load_tensors(FileSystem& fs, const std::string& directory, std::span<const NamedTensor> tensors,
                        Others others, Device& device) {
  CheckpointRecord record = verified_record(fs, directory);
  std::vector<std::unique_ptr<SafetensorsReader>> files;
  for (const CheckpointFile& file : record.files) {
    files.push_back(std::make_unique<SafetensorsReader>(fs, file_in(directory, file.name)));
  }
  const StoredTensors stored = stored_tensors(files);
  check_tensors(directory, stored, tensors, others);
  upload_tensors(stored, tensors, device);
  return record.state;
}

}  // namespace

void write_checkpoint(FileSystem& fs, const std::string& directory, const TrainState& state,
                      std::span<const NamedTensor> tensors, Device& device) {
  fs.create_directories(directory);
  const CheckpointRecord record{state, {write_tensors(fs, directory, tensors, device)}};
  const auto file = fs.create(file_in(directory, kStateName));
  file->append(bytes_of(checkpoint_record_text(record)));
  file->sync();
  file->close();
  fs.sync_directory(directory);
}

TrainState read_checkpoint_state(FileSystem& fs, const std::string& directory) {
  return read_record(fs, directory).state;
}

TrainState verify_checkpoint(FileSystem& fs, const std::string& directory) {
  return verified_record(fs, directory).state;
}

TrainState load_checkpoint(FileSystem& fs, const std::string& directory, std::span<const NamedTensor> tensors,
                           Device& device) {
  return load_tensors(fs, directory, tensors, Others::kRefused, device);
}

TrainState load_part_of_checkpoint(FileSystem& fs, const std::string& directory,
                                   std::span<const NamedTensor> tensors, Device& device) {
  return load_tensors(fs, directory, tensors, Others::kLeft, device);
}

}  // namespace mpt
