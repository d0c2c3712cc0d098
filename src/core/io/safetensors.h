// Reads and writes safetensors files, Hugging Face's format for named tensors.
//
// Layout: 8 bytes little-endian header length N; N bytes of JSON
//   {"__metadata__": {text: text},
//    name: {"dtype": "BF16", "shape": [r, c], "data_offsets": [begin, end]}, ...}
// then the bytes of the tensors, with offsets relative to the end of the header and no holes. The
// writer pads the header with spaces so that the data starts at a multiple of 8 bytes.
//
// The reader validates the whole header against the file size before returning; every defect is an
// Error naming the file and the cause, so reading any listed tensor stays in bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.h"
#include "core/io/file_system.h"
#include "core/io/hash.h"
#include "core/tensor.h"

namespace mpt {

enum class StoredType : uint8_t { kF32, kBF16, kI32, kU8, kF16, kF8E4M3, kF8E8M0, kI16, kI8 };
template <>
struct EnumNames<StoredType> {
  static constexpr std::array<std::string_view, 9> kNames{"F32",     "BF16",    "I32", "U8", "F16",
                                                          "F8_E4M3", "F8_E8M0", "I16", "I8"};
};
constexpr int64_t size_of(StoredType type) {
  constexpr std::array<int64_t, 9> kSizes{4, 2, 4, 1, 2, 1, 1, 2, 1};
  return kSizes[static_cast<size_t>(type)];
}
StoredType stored_type(DType type);

struct StoredTensorInfo {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;  // empty for a scalar

  [[nodiscard]] int64_t bytes() const;
  [[nodiscard]] std::string description() const;  // "BF16 [4, 8]"
};

using SafetensorsMetadata = std::map<std::string, std::string>;

// Declares all tensors up front, then takes their bytes in that order, in pieces of any size.
//
//   SafetensorsWriter writer(fs, path, {{"a", StoredType::kF32, {2, 3}}}, {{"format", "pt"}});
//   writer.append(bytes);
//   const auto [size, hash] = writer.finish();
class SafetensorsWriter {
 public:
  struct Summary {
    int64_t bytes = 0;
    std::string hash;  // XXH3-128 of the file
  };
  SafetensorsWriter(FileSystem& fs, std::string path, const std::vector<StoredTensorInfo>& tensors,
                    const SafetensorsMetadata& metadata = {});
  void append(std::span<const std::byte> bytes);
  // Syncs and closes. All declared bytes must have been appended.
  Summary finish();

 private:
  void write(std::span<const std::byte> bytes);

  std::string path_;
  std::unique_ptr<WritableFile> file_;
  Hasher hasher_;
  int64_t written_ = 0;
  int64_t expected_ = 0;
};

class SafetensorsReader {
 public:
  struct Entry : StoredTensorInfo {
    int64_t begin = 0;  // byte offset in the file
    int64_t end = 0;
  };

  SafetensorsReader(FileSystem& fs, std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::vector<Entry>& tensors() const {
    return tensors_;
  }  // sorted by byte offset
  [[nodiscard]] const SafetensorsMetadata& metadata() const { return metadata_; }
  [[nodiscard]] const Entry* find(std::string_view name) const;  // null if absent
  [[nodiscard]] const Entry& at(std::string_view name) const;    // throws Error if absent

  [[nodiscard]] std::vector<std::byte> read(const Entry& entry) const;
  // Fills `target` from byte `first` of the tensor.
  void read(const Entry& entry, int64_t first, std::span<std::byte> target) const;

 private:
  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  std::vector<Entry> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  SafetensorsMetadata metadata_;
};

}  // namespace mpt
