#include "core/io/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/json/json_events.h"
#include "core/json/json_parse.h"
#include "core/text/library_message.h"

namespace mpt {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the limit of Hugging Face's reader
constexpr const char* kMetadataKey = "__metadata__";

// Size of a tensor in bytes; nullopt if the count is negative or does not fit in 63 bits.
std::optional<int64_t> checked_bytes(StoredType type, const std::vector<int64_t>& shape) {
  int64_t bytes = size_of(type);
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    empty |= extent == 0;
    if (extent > 0 && __builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return empty ? 0 : bytes;
}

std::array<std::byte, kLengthBytes> little_endian(uint64_t value) {
  std::array<std::byte, kLengthBytes> bytes{};
  for (int i = 0; i < kLengthBytes; ++i)
    bytes[static_cast<size_t>(i)] = static_cast<std::byte>(value >> 8 * i);
  return bytes;
}

uint64_t from_little_endian(std::span<const std::byte, kLengthBytes> bytes) {
  uint64_t value = 0;
  for (int i = 0; i < kLengthBytes; ++i)
    value |= std::to_integer<uint64_t>(bytes[static_cast<size_t>(i)]) << 8 * i;
  return value;
}

std::string header_text(const std::vector<StoredTensorInfo>& tensors,
                        const SafetensorsMetadata& metadata) {
  ordered_json header = ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  int64_t offset = 0;
  for (const StoredTensorInfo& tensor : tensors) {
    check(!tensor.name.empty() && tensor.name != kMetadataKey && !header.contains(tensor.name),
          "tensor name '{}' is empty, reserved or used twice", tensor.name);
    const int64_t end = offset + tensor.bytes();
    header[tensor.name] = {
        {"dtype", name_of(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

// Parses one tensor's object in the header field by field.
class EntryParser {
 public:
  static constexpr size_t kFields = 3;

  EntryParser(const std::string& path, const std::string& name, const json& fields)
      : path_(path), name_(name), fields_(fields) {}

  // Offsets are relative to the end of the header, at `data_begin`.
  SafetensorsReader::Entry parse(int64_t data_begin, int64_t data_bytes) const {
    if (!fields_.is_object() || fields_.size() != kFields)
      fail("needs exactly dtype, shape and data_offsets");
    SafetensorsReader::Entry entry;
    entry.name = name_;
    entry.type = type();
    entry.shape = integers("shape");
    const std::vector<int64_t> offsets = integers("data_offsets");
    if (offsets.size() != 2) fail("data_offsets needs 2 numbers, has {}", offsets.size());
    const auto [begin, end] = std::pair(offsets[0], offsets[1]);
    if (begin > end || end > data_bytes) {
      fail("bytes {} to {} are not within the file's {} bytes of data", begin, end, data_bytes);
    }
    const std::optional<int64_t> bytes = checked_bytes(entry.type, entry.shape);
    if (!bytes || *bytes != end - begin) {
      fail("{} does not match the {} bytes of data_offsets", entry.description(), end - begin);
    }
    entry.begin = data_begin + begin;
    entry.end = data_begin + end;
    return entry;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw error("{}: tensor '{}': {}", path_, name_,
                fmt::format(format, std::forward<Args>(args)...));
  }
  const json& field(const char* key) const {
    const auto found = fields_.find(key);
    if (found == fields_.end()) fail("has no {}", key);
    return *found;
  }
  StoredType type() const {
    const json& value = field("dtype");
    if (!value.is_string()) fail("dtype is not a string");
    const auto found = enum_from_name<StoredType>(value.get_ref<const std::string&>());
    if (!found) fail("has dtype {}; supported: {}", json_text(value), all_names<StoredType>());
    return *found;
  }
  std::vector<int64_t> integers(const char* key) const {
    const json& values = field(key);
    if (!values.is_array()) fail("{} is not a list", key);
    std::vector<int64_t> numbers;
    for (const json& value : values) {
      constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
      if (!value.is_number_unsigned() || value.get<uint64_t>() > kMax) {
        fail("{} contains {}; expected a non-negative integer", key, json_text(value));
      }
      numbers.push_back(value.get<int64_t>());
    }
    return numbers;
  }

  const std::string& path_;
  const std::string& name_;
  const json& fields_;
};

// Reads a header entry by entry, so that it takes little more memory than its contents. Rejects
// what a JSON parser itself would accept: duplicate keys, long lists, deep nesting.
class HeaderReader : public JsonEvents<json> {
 public:
  // `data_bytes`: number of bytes after the header, which ends at `data_begin`.
  HeaderReader(const std::string& path, int64_t data_begin, int64_t data_bytes)
      : path_(path), data_begin_(data_begin), data_bytes_(data_bytes) {}

  void read(std::string_view text) { json::sax_parse(text, this); }
  std::vector<SafetensorsReader::Entry> take_tensors() { return std::move(tensors_); }
  SafetensorsMetadata take_metadata() { return std::move(metadata_); }

  bool value(json value) override {
    require_header();
    if (depth_ == kInHeader)
      take_entry(value);
    else if (depth_ == kInEntry)
      take_field(std::move(value));
    else
      append(std::move(value));
    return true;
  }
  bool open(json empty) override {
    const bool is_list = empty.is_array();
    if (is_list) require_header();
    if (depth_ > kInEntry || (depth_ == kInEntry && !is_list))
      throw error("{}: the safetensors header is nested too deeply", path_);
    if (depth_ == kInHeader && is_list) take_entry(empty);  // not valid for an entry
    if (depth_ == kInEntry)
      take_field(std::move(empty));
    else
      fields_ = std::move(empty);
    ++depth_;
    return true;
  }
  bool key(std::string& key) override {
    if (!announce(key))
      throw error("{}: the safetensors header has the key {} twice", path_, json_text(json(key)));
    if (fields_.size() > EntryParser::kFields) take_entry(fields_);  // too many fields
    return true;
  }
  bool close() override {
    if (--depth_ == kInHeader) take_entry(fields_);
    return true;
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& reason) override {
    throw error("{}: the safetensors header is not valid JSON: {}", path_,
                library_message(reason.what()));
  }

 private:
  enum Depth : uint8_t { kOutside, kInHeader, kInEntry, kInList };

  void require_header() const {
    if (depth_ == kOutside) throw error("{}: the safetensors header is not a JSON object", path_);
  }
  [[nodiscard]] bool is_metadata() const { return name_ == kMetadataKey; }
  // Returns whether the key is new at this level.
  bool announce(const std::string& key) {
    if (depth_ == kInHeader) {
      name_ = key;
      fields_ = nullptr;
      return names_.insert(key).second;
    }
    field_ = key;
    return is_metadata() ? metadata_.emplace(key, "").second : fields_.emplace(key, nullptr).second;
  }
  void take_field(json value) {
    if (!is_metadata()) {
      fields_[field_] = std::move(value);
      return;
    }
    if (!value.is_string())
      throw error("{}: {} key '{}' is not a string", path_, kMetadataKey, field_);
    metadata_[field_] = std::move(value.get_ref<std::string&>());
  }
  void append(json value) {
    constexpr size_t kMostElements = 64;  // in a shape
    json& list = fields_[field_];
    if (list.size() == kMostElements)
      throw error("{}: '{}' in the safetensors header has a list of more than {} elements", path_,
                  name_, kMostElements);
    list.push_back(std::move(value));
  }
  void take_entry(const json& fields) {
    if (!is_metadata())
      tensors_.push_back(EntryParser(path_, name_, fields).parse(data_begin_, data_bytes_));
    else if (!fields.is_object())
      throw error("{}: {} is not a JSON object", path_, kMetadataKey);
  }

  const std::string& path_;
  int64_t data_begin_, data_bytes_;
  int depth_ = kOutside;
  std::string name_, field_;     // the last keys announced
  std::set<std::string> names_;  // entry names so far
  json fields_;                  // the open entry's
  std::vector<SafetensorsReader::Entry> tensors_;
  SafetensorsMetadata metadata_;
};

// Sorts the tensors by offset and checks that they cover the data without holes or overlap.
void check_contiguous(const std::string& path, std::vector<SafetensorsReader::Entry>& entries,
                      int64_t begin, int64_t end) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const int64_t data_begin = begin;
  for (const auto& entry : entries) {
    if (entry.begin != begin) {
      throw error("{}: tensor '{}' begins at data byte {}, but the one before it ends at {}", path,
                  entry.name, entry.begin - data_begin, begin - data_begin);
    }
    begin = entry.end;
  }
  if (begin != end) {
    throw error("{}: the tensors take {} bytes of data, the file has {}", path, begin - data_begin,
                end - data_begin);
  }
}

}  // namespace

StoredType stored_type(DType type) {
  switch (type) {
    case DType::kF32:
      return StoredType::kF32;
    case DType::kBF16:
      return StoredType::kBF16;
    case DType::kI32:
      return StoredType::kI32;
    case DType::kF16:
      return StoredType::kF16;
    case DType::kE4M3:
      return StoredType::kF8E4M3;
    case DType::kE8M0:
      return StoredType::kF8E8M0;
    case DType::kU8:
      return StoredType::kU8;
    case DType::kI16:
      return StoredType::kI16;
    case DType::kI8:
      return StoredType::kI8;
    case DType::kE5M2:  // never stored
    case DType::kF64:
      break;
  }
  throw LogicError(fmt::format("no stored type for dtype {}", static_cast<int>(type)));
}

int64_t StoredTensorInfo::bytes() const {
  const std::optional<int64_t> count = checked_bytes(type, shape);
  check(count.has_value(), "tensor '{}' cannot have the shape {}", name, description());
  return *count;
}

std::string StoredTensorInfo::description() const {
  return fmt::format("{} [{}]", name_of(type), fmt::join(shape, ", "));
}

SafetensorsWriter::SafetensorsWriter(FileSystem& fs, std::string path,
                                     const std::vector<StoredTensorInfo>& tensors,
                                     const SafetensorsMetadata& metadata)
    : path_(std::move(path)) {
  const std::string text = header_text(tensors, metadata);
  const auto header_bytes = static_cast<int64_t>(text.size());
  check(header_bytes <= kMaxHeaderBytes, "{}: header has {} bytes; at most {} are allowed", path_,
        header_bytes, kMaxHeaderBytes);
  expected_ = kLengthBytes + header_bytes;
  for (const StoredTensorInfo& tensor : tensors) expected_ += tensor.bytes();
  file_ = fs.create(path_);
  write(little_endian(text.size()));
  write(bytes_of(text));
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  file_->append(bytes);
  hasher_.update(bytes);
  written_ += static_cast<int64_t>(bytes.size());
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  const auto count = static_cast<int64_t>(bytes.size());
  check(count <= expected_ - written_, "{}: {} bytes appended, {} were declared", path_,
        written_ + count, expected_);
  write(bytes);
}

SafetensorsWriter::Summary SafetensorsWriter::finish() {
  check(written_ == expected_, "{}: {} bytes appended, {} were declared", path_, written_,
        expected_);
  file_->sync();
  file_->close();
  return {.bytes = written_, .hash = hasher_.hex()};
}

SafetensorsReader::SafetensorsReader(FileSystem& fs, std::string path)
    : path_(std::move(path)), file_(fs.open_read(path_)) {
  const int64_t size = file_->size();
  if (size < kLengthBytes)
    throw error("{}: has {} bytes, too few for a safetensors file", path_, size);
  std::array<std::byte, kLengthBytes> length{};
  file_->read(0, length);
  const uint64_t header_bytes = from_little_endian(length);
  if (header_bytes > kMaxHeaderBytes || static_cast<int64_t>(header_bytes) > size - kLengthBytes) {
    throw error(
        "{}: not a safetensors file, or truncated: its header needs {} bytes, the file has {}",
        path_, header_bytes, size);
  }
  std::string text(header_bytes, '\0');
  file_->read(kLengthBytes, std::as_writable_bytes(std::span(text)));

  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(header_bytes);
  HeaderReader header(path_, data_begin, size - data_begin);
  header.read(text);
  tensors_ = header.take_tensors();
  metadata_ = header.take_metadata();
  check_contiguous(path_, tensors_, data_begin, size);
  for (size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
}

const SafetensorsReader::Entry* SafetensorsReader::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const SafetensorsReader::Entry& SafetensorsReader::at(std::string_view name) const {
  const Entry* entry = find(name);
  if (!entry)
    throw error("{}: has no tensor '{}' among its {} tensors", path_, name, tensors_.size());
  return *entry;
}

std::vector<std::byte> SafetensorsReader::read(const Entry& entry) const {
  std::vector<std::byte> bytes(static_cast<size_t>(entry.end - entry.begin));
  read(entry, 0, bytes);
  return bytes;
}

void SafetensorsReader::read(const Entry& entry, int64_t first, std::span<std::byte> target) const {
  const auto count = static_cast<int64_t>(target.size());
  check(first >= 0 && first + count <= entry.end - entry.begin,
        "bytes [{}, +{}) are outside tensor '{}' of {} bytes", first, count, entry.name,
        entry.end - entry.begin);
  file_->read(entry.begin + first, target);
}

}  // namespace mpt
