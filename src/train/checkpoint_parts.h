// Where the elements of tensors lie among the files of a checkpoint.
//
// A part that is a whole tensor is stored under the tensor's name with its shape. A stretch of one is stored
// flat, under the name and its first element ("m/lm_head.weight@4096"), and state.json says what it is of.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/named_tensor.h"
#include "core/safetensors.h"
#include "train/checkpoint_files.h"

namespace mpt {

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
