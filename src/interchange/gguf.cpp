#include "interchange/gguf.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "core/check.h"

namespace mpt {
namespace {

constexpr uint32_t kVersion = 3;
// Types of values.
constexpr uint32_t kUInt32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9;

template <class T>
void put(std::string& bytes, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    put(bytes, std::bit_cast<uint32_t>(value));
  } else {
    for (size_t i = 0; i < sizeof(T); ++i)
      bytes += static_cast<char>(static_cast<std::make_unsigned_t<T>>(value) >> 8 * i & 0xFF);
  }
}

void put_text(std::string& bytes, std::string_view text) {
  put(bytes, uint64_t{text.size()});
  bytes += text;
}

uint32_t element_type(const StoredTensorInfo& tensor) {
  switch (tensor.type) {
    case StoredType::kF32:
      return 0;
    case StoredType::kF16:
      return 1;
    case StoredType::kBF16:
      return 30;
    default:
      throw LogicError(fmt::format("{} is {}; a GGUF file takes F32, F16 and BF16", tensor.name,
                                   name_of(tensor.type)));
  }
}

int64_t aligned(int64_t bytes) {
  return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

std::string header_of(const GgufMetadata& metadata, const std::vector<StoredTensorInfo>& tensors) {
  std::string bytes = "GGUF";
  put(bytes, kVersion);
  put(bytes, uint64_t{tensors.size()});
  put(bytes, static_cast<uint64_t>(metadata.size()));
  bytes += metadata.bytes();
  int64_t offset = 0;
  for (const StoredTensorInfo& tensor : tensors) {
    put_text(bytes, tensor.name);
    put(bytes, static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) put(bytes, *size);
    put(bytes, element_type(tensor));
    put(bytes, offset);
    offset += aligned(tensor.bytes());
  }
  return bytes;
}

template <class T, class Put>
void put_array(std::string& bytes, uint32_t type, const std::vector<T>& values,
               const Put& put_one) {
  put(bytes, type);
  put(bytes, uint64_t{values.size()});
  for (const T& value : values) put_one(value);
}

}  // namespace

void GgufMetadata::begin(std::string_view key, uint32_t type) {
  put_text(bytes_, key);
  put(bytes_, type);
  ++size_;
}

void GgufMetadata::add(std::string_view key, uint32_t value) {
  begin(key, kUInt32);
  put(bytes_, value);
}
void GgufMetadata::add(std::string_view key, float value) {
  begin(key, kFloat32);
  put(bytes_, value);
}
void GgufMetadata::add(std::string_view key, std::string_view value) {
  begin(key, kString);
  put_text(bytes_, value);
}
void GgufMetadata::add_flag(std::string_view key, bool value) {
  begin(key, kBool);
  put(bytes_, static_cast<uint8_t>(value));
}
void GgufMetadata::add(std::string_view key, const std::vector<std::string>& values) {
  begin(key, kArray);
  put_array(bytes_, kString, values, [&](const std::string& text) { put_text(bytes_, text); });
}
void GgufMetadata::add(std::string_view key, const std::vector<float>& values) {
  begin(key, kArray);
  put_array(bytes_, kFloat32, values, [&](float value) { put(bytes_, value); });
}
void GgufMetadata::add(std::string_view key, const std::vector<int32_t>& values) {
  begin(key, kArray);
  put_array(bytes_, kInt32, values, [&](int32_t value) { put(bytes_, value); });
}

GgufWriter::GgufWriter(FileSystem& fs, const std::string& path, const GgufMetadata& metadata,
                       const std::vector<StoredTensorInfo>& tensors)
    : file_(fs, path) {
  for (const StoredTensorInfo& tensor : tensors) left_.push_back(tensor.bytes());
  const std::string header = header_of(metadata, tensors);
  file_.append(bytes_of(header));
  written_ = static_cast<int64_t>(header.size());
  pad();
}

void GgufWriter::pad() {
  const std::string zeros(size_t(aligned(written_) - written_), '\0');
  file_.append(bytes_of(zeros));
  written_ += static_cast<int64_t>(zeros.size());
}

void GgufWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    check(current_ < left_.size(), "{}: more bytes appended than declared", file_.path());
    const int64_t count = std::min(left_[current_], std::ssize(bytes));
    file_.append(bytes.first(size_t(count)));
    bytes = bytes.subspan(size_t(count));
    written_ += count;
    left_[current_] -= count;
    if (left_[current_] > 0) continue;
    pad();
    ++current_;
  }
}

void GgufWriter::commit() {
  check(current_ == left_.size(), "{}: only {} of {} tensors are complete", file_.path(), current_,
        left_.size());
  file_.commit();
}

}  // namespace mpt
