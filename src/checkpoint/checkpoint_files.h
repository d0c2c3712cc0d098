// One checkpoint: a directory with the tensors of every rank and a state.json that describes and
// seals them.
//
//   rank_00000_of_00002.safetensors   what rank 0 wrote: tensors, and stretches of tensors
//   rank_00001_of_00002.safetensors
//   state.json                        step, cursor, seed, tokens, config, the caller's extra; size,
//                                     XXH3-128 hash and stretches of every other file; and a
//                                     checksum of itself
//
// Together the files hold every element of every tensor exactly once, however many ranks wrote
// them; any number of ranks can load any part. Sizes, hashes, names, types and shapes are all
// checked before the first byte reaches a device. Every defect is an Error that names the file or
// the tensor.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/file_system.h"
#include "core/io/safetensors.h"
#include "core/tensor.h"
#include "device/device.h"

namespace mpt {

// A run's state apart from tensors. NaN and infinite values are preserved.
struct TrainState {
  int64_t step = 0;
  int64_t cursor = 0;  // global sequences consumed
  uint64_t seed = 0;
  nlohmann::json config;  // resolved
  nlohmann::json extra;   // the caller's, such as counters
  int64_t tokens = 0;     // trained on so far
};

// A range of consecutive elements of a tensor, stored in one file.
struct StoredStretch {
  std::string tensor;
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t first = 0, count = 0;
  bool operator==(const StoredStretch&) const = default;
};

// A complete and synced file of a checkpoint.
struct CheckpointFile {
  std::string name;  // within the checkpoint's directory
  int64_t bytes = 0;
  std::string hash;
  std::vector<StoredStretch> stretches{};  // of tensors that the file holds in part
  bool operator==(const CheckpointFile&) const = default;
};

// "rank_00000_of_00004.safetensors"
std::string rank_file_name(int64_t rank, int64_t ranks);

// Writes and syncs state.json in `directory`, then syncs the directory. `files` must already be
// there.
void write_checkpoint_state(FileSystem& fs, const std::string& directory, const TrainState& state,
                            std::span<const CheckpointFile> files);

// Parses state.json and checks its checksum; other files are not checked.
TrainState read_checkpoint_state(FileSystem& fs, const std::string& directory);

// As read_checkpoint_state, and checks sizes and headers of the files: together they must hold
// every tensor once. Tensor data is not read.
TrainState inspect_checkpoint(FileSystem& fs, const std::string& directory);

// As inspect_checkpoint, and reads every file and compares its hash, showing progress.
TrainState verify_checkpoint(FileSystem& fs, const std::string& directory);
// The same, but reads and hashes only every `ranks`-th file, starting with file `rank`.
TrainState verify_share_of_checkpoint(FileSystem& fs, const std::string& directory, int64_t rank,
                                      int64_t ranks);

// Verifies, then fills `tensors`. Throws Error unless the checkpoint holds exactly these tensors,
// with their types and shapes.
TrainState load_checkpoint(FileSystem& fs, const std::string& directory,
                           std::span<const NamedTensor> tensors, Device& device);

// The same for some of the tensors, such as the weights: the checkpoint may hold others.
TrainState load_part_of_checkpoint(FileSystem& fs, const std::string& directory,
                                   std::span<const NamedTensor> tensors, Device& device);

// As load_checkpoint, for a checkpoint that was just verified: checks only file sizes and reads
// only what is needed. A part without elements declares that this run has the tensor but loads none
// of it.
TrainState load_verified_checkpoint(FileSystem& fs, const std::string& directory,
                                    std::span<const TensorPart> parts, Device& device);
TrainState load_part_of_verified_checkpoint(FileSystem& fs, const std::string& directory,
                                            std::span<const TensorPart> parts, Device& device);

std::vector<TensorPart> whole_parts(std::span<const NamedTensor> tensors);

// state.json of a checkpoint: parsing and writing. It is sealed by a hash of its own content.

inline constexpr const char* kStateName = "state.json";

struct CheckpointRecord {
  TrainState state;
  std::vector<CheckpointFile> files;
  int64_t version = 0;   // of the format it was read from
  std::string saved_at;  // "2026-05-31T23:59:59Z"; empty if unknown
};

// Writes the newest version of the format; the record's `version` is ignored.
std::string checkpoint_record_text(const CheckpointRecord& record);
// `path` is named in errors.
CheckpointRecord parse_checkpoint_record(const std::string& path, std::string_view text);

// Reads state.json of `directory`.
CheckpointRecord read_checkpoint_record(FileSystem& fs, const std::string& directory);

// One CheckpointFile as text, to send to other ranks.
std::string checkpoint_file_text(const CheckpointFile& file);
CheckpointFile parse_checkpoint_file(const std::string& path, std::string_view text);

// Which file of a checkpoint holds which elements of a tensor.
//
// A whole tensor is stored under its name with its shape. A stretch is stored flat, under the name
// and its first element ("m/lm_head.weight@4096"); state.json gives its tensor, shape and range.

// The part's elements as rectangles of at most DeviceReader::kMostBytes each, in packed order.
std::vector<Tensor> blocks_of(const TensorPart& part);

int64_t bytes_of(std::span<const TensorPart> parts);

// Parts as a file stores them. Empty parts of non-empty tensors are omitted.
struct PartList {
  std::vector<StoredTensorInfo> entries;
  std::vector<StoredStretch> stretches;
};
PartList list_of(std::span<const TensorPart> parts);

// The tensors of a checkpoint, from the headers of its files. The constructor throws Error naming
// the file and the tensor unless every element of every tensor is stored exactly once.
class StoredTensors {
 public:
  StoredTensors(FileSystem& fs, std::string directory, std::span<const CheckpointFile> files);

  struct Piece {
    int64_t first, count;  // elements
    const SafetensorsReader* file;
    const SafetensorsReader::Entry* entry;
  };
  struct Stored {
    StoredTensorInfo info;      // of the whole tensor
    std::vector<Piece> pieces;  // ascending
  };
  using Map = std::map<std::string, Stored, std::less<>>;
  [[nodiscard]] const Map& tensors() const { return tensors_; }
  // Throws Error, with the expected and the found type and shape, unless the tensor matches the
  // part.
  const Stored& at(const TensorPart& part) const;
  // Fills `target` with packed elements, starting at element `first`.
  static void read(const Stored& stored, int64_t first, std::span<std::byte> target);

 private:
  void add(const SafetensorsReader& file, const std::vector<StoredStretch>& stretches);
  void add(const StoredTensorInfo& whole, const Piece& piece);
  void check_complete(Stored& stored) const;

  std::string directory_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  Map tensors_;
};

}  // namespace mpt
