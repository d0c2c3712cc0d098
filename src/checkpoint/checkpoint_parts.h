// Which file of a checkpoint holds which elements of a tensor.
//
// A whole tensor is stored under its name with its shape. A span is stored flat, under the tensor's
// name and its first element ("m/lm_head.weight@4096"); state.json gives its tensor, shape and
// range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_state.h"
#include "core/io/file_system.h"
#include "core/io/safetensors.h"
#include "core/named_tensor.h"
#include "core/tensor.h"

namespace mpt {

// The part's elements as rectangles of at most DeviceReader::kMostBytes each, in packed order.
std::vector<Tensor> blocks_of(const TensorPart& part);

int64_t bytes_of(std::span<const TensorPart> parts);

// Parts in the form in which a file stores them. Empty parts of non-empty tensors are omitted.
struct PartList {
  std::vector<StoredTensorInfo> entries;
  std::vector<StoredSpan> spans;
};
PartList list_of(std::span<const TensorPart> parts);

// Tensors of a checkpoint, from the headers of its files. The constructor throws Error naming the
// file and the tensor unless every element of every tensor is stored exactly once.
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
  // Throws Error, with the expected and actual type and shape, unless the tensor matches the part.
  const Stored& at(const TensorPart& part) const;
  // Fills `target` with packed elements, starting at element `first`.
  static void read(const Stored& stored, int64_t first, std::span<std::byte> target);

 private:
  void add(const SafetensorsReader& file, const std::vector<StoredSpan>& spans);
  void add(const StoredTensorInfo& whole, const Piece& piece);
  void check_complete(Stored& stored) const;

  std::string directory_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  Map tensors_;
};

}  // namespace mpt
