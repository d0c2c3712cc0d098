// Writes GGUF files of version 3, the format of llama.cpp.
//
// Layout, little-endian: "GGUF", version u32, tensors u64, entries u64; the metadata entries; per
// tensor its name, dimensions (columns first), element type and offset; then the tensors, each at a
// multiple of 32 bytes. A file appears under its name only once it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/output_file.h"
#include "core/io/safetensors.h"

namespace mpt {

inline constexpr int64_t kGgufAlignment = 32;

// Typed values by key, in insertion order.
class GgufMetadata {
 public:
  void add(std::string_view key, uint32_t value);
  void add(std::string_view key, float value);
  void add(std::string_view key, std::string_view value);
  void add_flag(std::string_view key, bool value);
  void add(std::string_view key, const std::vector<std::string>& values);
  void add(std::string_view key, const std::vector<float>& values);
  void add(std::string_view key, const std::vector<int32_t>& values);

  [[nodiscard]] int64_t size() const { return size_; }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, uint32_t type);

  int64_t size_ = 0;
  std::string bytes_;
};

// Takes the bytes of the tensors in the order of declaration, in pieces of any size. Elements are
// F32, F16 or BF16.
class GgufWriter {
 public:
  GgufWriter(FileSystem& fs, const std::string& path, const GgufMetadata& metadata,
             const std::vector<StoredTensorInfo>& tensors);
  void append(std::span<const std::byte> bytes);
  // All declared bytes must have been appended.
  void commit();

 private:
  void pad();

  OutputFile file_;
  std::vector<int64_t> left_;  // remaining bytes of each tensor
  size_t current_ = 0;
  int64_t written_ = 0;
};

}  // namespace mpt
