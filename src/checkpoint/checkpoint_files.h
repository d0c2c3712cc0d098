// One checkpoint: a directory with the tensors of every rank and a state.json that describes and seals them.
//
//   rank_00000_of_00002.safetensors   what rank 0 wrote: tensors, and stretches of tensors
//   rank_00001_of_00002.safetensors
//   state.json                        step, cursor, seed, tokens, config, what the caller adds, the size and
//                                     XXH3-128 hash of every other file, the stretches in it, and a checksum
//                                     of itself
//
// Together the files hold every element of every tensor once, however many ranks wrote them: any part of it
// can be loaded, by any number of ranks. A checkpoint is read whole or not at all: sizes, hashes, names,
// types and shapes are all checked before the first byte reaches a device. Every defect is an Error that
// names the file or the tensor.
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

// All of a run that is not a tensor. Values that are NaN or infinite come back as they were.
struct TrainState {
  int64_t step = 0;
  int64_t cursor = 0;  // global sequences consumed
  uint64_t seed = 0;
  nlohmann::json config;  // resolved
  nlohmann::json extra;   // the caller's: metrics window, scaling state
  int64_t tokens = 0;     // trained on so far
};

// Consecutive elements of a tensor that a file holds.
struct StoredStretch {
  std::string tensor;
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t first = 0, count = 0;
  bool operator==(const StoredStretch&) const = default;
};

// A file of a checkpoint, whole and synced.
struct CheckpointFile {
  std::string name;  // within the checkpoint's directory
  int64_t bytes = 0;
  std::string hash;
  std::vector<StoredStretch> stretches{};  // of tensors that it does not hold whole
  bool operator==(const CheckpointFile&) const = default;
};

// "rank_00000_of_00004.safetensors"
std::string rank_file_name(int64_t rank, int64_t ranks);

// Writes and syncs state.json into `directory`, where the files are already, and syncs that.
void write_checkpoint_state(FileSystem& fs, const std::string& directory, const TrainState& state,
                            std::span<const CheckpointFile> files);

// Parses state.json and checks its seal, not the other files.
TrainState read_checkpoint_state(FileSystem& fs, const std::string& directory);

// As read_checkpoint_state, then looks at the sizes and headers of the files: together they hold every tensor
// once. The tensors are not read.
TrainState inspect_checkpoint(FileSystem& fs, const std::string& directory);

// As inspect_checkpoint, then reads every file and compares its hash, showing progress.
TrainState verify_checkpoint(FileSystem& fs, const std::string& directory);
// The same, but of the files only every `ranks`th from the one numbered `rank` is read and hashed.
TrainState verify_share_of_checkpoint(FileSystem& fs, const std::string& directory, int64_t rank,
                                      int64_t ranks);

// Verifies, then fills all of `tensors`: each must be there with its type and shape, and nothing else may be.
TrainState load_checkpoint(FileSystem& fs, const std::string& directory, std::span<const NamedTensor> tensors,
                           Device& device);

// The same for a part of the checkpoint's tensors, such as the weights alone: others may be there.
TrainState load_part_of_checkpoint(FileSystem& fs, const std::string& directory,
                                   std::span<const NamedTensor> tensors, Device& device);

// As load_checkpoint, of one that was verified just before: of the files only the sizes are looked at, and
// only what is needed is read. A part without elements says that this run has the tensor.
TrainState load_verified_checkpoint(FileSystem& fs, const std::string& directory,
                                    std::span<const TensorPart> parts, Device& device);
TrainState load_part_of_verified_checkpoint(FileSystem& fs, const std::string& directory,
                                            std::span<const TensorPart> parts, Device& device);

std::vector<TensorPart> whole_parts(std::span<const NamedTensor> tensors);

// state.json of a checkpoint: text to structure and back, sealed by a hash of its own content.

inline constexpr const char* kStateName = "state.json";

struct CheckpointRecord {
  TrainState state;
  std::vector<CheckpointFile> files;
  int64_t version = 0;   // of the format, as read
  std::string saved_at;  // "2026-05-31T23:59:59Z"; empty where it is not known
};

// In the newest version of the format; `version` of the record is not looked at.
std::string checkpoint_record_text(const CheckpointRecord& record);
// `path` is named in errors.
CheckpointRecord parse_checkpoint_record(const std::string& path, std::string_view text);

// The state.json of that directory.
CheckpointRecord read_checkpoint_record(FileSystem& fs, const std::string& directory);

// One of the files alone, for other ranks.
std::string checkpoint_file_text(const CheckpointFile& file);
CheckpointFile parse_checkpoint_file(const std::string& path, std::string_view text);

// Where the elements of tensors lie among the files of a checkpoint.
//
// A part that is a whole tensor is stored under the tensor's name with its shape. A stretch of one is stored
// flat, under the name and its first element ("m/lm_head.weight@4096"), and state.json says what it is of.

// Rectangles of at most DeviceReader::kMostBytes that are the part's elements, in the order in which they are
// packed.
std::vector<Tensor> blocks_of(const TensorPart& part);

int64_t bytes_of(std::span<const TensorPart> parts);

// Parts as a file holds them; those without elements of a tensor that has some are left out.
struct PartList {
  std::vector<StoredTensorInfo> entries;
  std::vector<StoredStretch> stretches;
};
PartList list_of(std::span<const TensorPart> parts);

// The tensors of a checkpoint, from the headers of its files. Every element of every tensor is there once, or
// the constructor throws Error with the file and the tensor.
class StoredTensors {
 public:
  StoredTensors(FileSystem& fs, std::string directory, std::span<const CheckpointFile> files);

  struct Piece {
    int64_t first, count;  // elements
    const SafetensorsReader* file;
    const SafetensorsReader::Entry* entry;
  };
  struct Stored {
    StoredTensorInfo info;      // of the whole
    std::vector<Piece> pieces;  // ascending
  };
  using Map = std::map<std::string, Stored, std::less<>>;
  [[nodiscard]] const Map& tensors() const { return tensors_; }
  // An Error that says what is needed and what is there, unless the tensor is there as the part needs it.
  const Stored& at(const TensorPart& part) const;
  // Fills `target` with the packed elements from `first` on.
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
