#include "text/corpus/parquet/values.h"

#include <algorithm>
#include <cstring>

#include "text/corpus/parquet/compact_protocol.h"

namespace mpt {
namespace {

constexpr int kMostWidth = 32;  // bits

uint32_t low_bits(uint64_t bits, int width) {
  return static_cast<uint32_t>(bits & ((uint64_t{1} << width) - 1));
}

// The number of `width` bits at bit `at`, least significant bit of each byte first.
uint32_t packed_number(std::string_view bytes, int64_t at, int width) {
  uint64_t window = 0;
  const auto first = static_cast<size_t>(at / 8);
  std::memcpy(&window, bytes.data() + first, std::min<size_t>(sizeof window, bytes.size() - first));
  return low_bits(window >> (at % 8), width);
}

}  // namespace

HybridNumbers::HybridNumbers(std::string_view bytes, int64_t width)
    : bytes_(bytes), width_(static_cast<int>(width)) {
  if (width < 0 || width > kMostWidth) throw damage("numbers of {} bits", width);
}

void HybridNumbers::begin_run() {
  const uint64_t head = take_varint(bytes_);
  const uint64_t count = head >> 1;
  if (count > static_cast<uint64_t>(kMostPageValues)) throw damage("a run of {} numbers", count);
  packed_ = (head & 1) != 0;
  left_ = static_cast<int64_t>(packed_ ? count * 8 : count);
  bits_ = 0;
  bit_count_ = 0;
  if (packed_) return;
  repeated_ = 0;
  const std::string_view value = take_bytes(bytes_, static_cast<uint64_t>(width_ + 7) / 8);
  std::memcpy(&repeated_, value.data(), value.size());
}

uint32_t HybridNumbers::next() {
  while (left_ == 0) begin_run();
  --left_;
  if (!packed_) return repeated_;
  while (bit_count_ < width_) {
    bits_ |= uint64_t{static_cast<uint8_t>(take_bytes(bytes_, 1)[0])} << bit_count_;
    bit_count_ += 8;
  }
  const uint32_t number = low_bits(bits_, width_);
  bits_ >>= width_;
  bit_count_ -= width_;
  return number;
}

// A block holds its minimum difference, the widths of its parts, then the parts: differences
// relative to the minimum.
std::vector<int32_t> take_delta_numbers(std::string_view& bytes, int64_t most) {
  const uint64_t block = take_varint(bytes), parts = take_varint(bytes);
  const uint64_t count = take_varint(bytes);
  if (block == 0 || block % 128 != 0 || block > (uint64_t{1} << 20) || parts == 0 ||
      block % parts != 0 || (block / parts) % 32 != 0)
    throw damage("blocks of {} numbers in {} parts", block, parts);
  if (count > static_cast<uint64_t>(most)) throw damage("{} numbers where {} fit", count, most);
  auto number = static_cast<uint32_t>(from_zigzag(take_varint(bytes)));  // wraps, as in writers
  std::vector<int32_t> numbers;
  numbers.reserve(count);
  if (count > 0) numbers.push_back(static_cast<int32_t>(number));
  while (numbers.size() < count) {
    const auto least = static_cast<uint32_t>(from_zigzag(take_varint(bytes)));
    const std::string_view widths = take_bytes(bytes, parts);
    for (size_t part = 0; part < parts && numbers.size() < count; ++part) {
      const int width = static_cast<uint8_t>(widths[part]);
      if (width > kMostWidth) throw damage("numbers of {} bits", width);
      const std::string_view packed =
          take_bytes(bytes, block / parts * static_cast<uint64_t>(width) / 8);
      for (size_t i = 0; i < block / parts && numbers.size() < count; ++i) {
        number += least;
        if (width > 0) number += packed_number(packed, static_cast<int64_t>(i) * width, width);
        numbers.push_back(static_cast<int32_t>(number));
      }
    }
  }
  return numbers;
}

std::string_view take_plain_string(std::string_view& bytes) {
  uint32_t length;
  std::memcpy(&length, take_bytes(bytes, sizeof length).data(), sizeof length);
  return take_bytes(bytes, length);
}

namespace {

class PlainStrings final : public PageStrings {
 public:
  explicit PlainStrings(std::string_view bytes) : bytes_(bytes) {}
  std::string_view next() override { return take_plain_string(bytes_); }

 private:
  std::string_view bytes_;
};

// One byte for the width of the numbers, then dictionary indices.
class DictionaryStrings final : public PageStrings {
 public:
  DictionaryStrings(std::string_view bytes, const std::vector<std::string_view>& dictionary)
      : dictionary_(dictionary) {
    const int64_t width = static_cast<uint8_t>(take_bytes(bytes, 1)[0]);
    numbers_ = HybridNumbers(bytes, width);
  }
  std::string_view next() override {
    const uint32_t at = numbers_.next();
    if (at >= dictionary_.size())
      throw damage("string {} of a dictionary of {}", at, dictionary_.size());
    return dictionary_[at];
  }

 private:
  const std::vector<std::string_view>& dictionary_;
  HybridNumbers numbers_;
};

// All lengths, then all bytes.
class DeltaLengthStrings final : public PageStrings {
 public:
  DeltaLengthStrings(std::string_view bytes, int64_t most_values)
      : lengths_(take_delta_numbers(bytes, most_values)), bytes_(bytes) {}
  std::string_view next() override {
    if (at_ == lengths_.size()) throw damage("fewer strings than the page has values");
    const int32_t length = lengths_[at_++];
    if (length < 0) throw damage("a string of {} bytes", length);
    return take_bytes(bytes_, static_cast<uint64_t>(length));
  }

 private:
  std::vector<int32_t> lengths_;
  std::string_view bytes_;
  size_t at_ = 0;
};

// Lengths of the prefixes shared with the preceding string, then the suffixes.
class DeltaStrings final : public PageStrings {
 public:
  DeltaStrings(std::string_view bytes, int64_t most_values)
      : shared_(take_delta_numbers(bytes, most_values)), rest_(bytes, most_values) {}
  std::string_view next() override {
    if (at_ == shared_.size()) throw damage("fewer strings than the page has values");
    const int32_t shared = shared_[at_++];
    if (shared < 0 || shared > std::ssize(text_))
      throw damage("{} bytes shared with a string of {}", shared, text_.size());
    text_.resize(static_cast<size_t>(shared));
    text_ += rest_.next();
    return text_;
  }

 private:
  std::vector<int32_t> shared_;
  DeltaLengthStrings rest_;
  std::string text_;
  size_t at_ = 0;
};

}  // namespace

std::unique_ptr<PageStrings> make_page_strings(ParquetEncoding encoding, std::string_view bytes,
                                               int64_t most_values,
                                               const std::vector<std::string_view>& dictionary) {
  if (bytes.empty()) return std::make_unique<PlainStrings>(bytes);  // no strings
  switch (encoding) {
    case ParquetEncoding::kPlain:
      return std::make_unique<PlainStrings>(bytes);
    case ParquetEncoding::kPlainDictionary:
    case ParquetEncoding::kRleDictionary:
      return std::make_unique<DictionaryStrings>(bytes, dictionary);
    case ParquetEncoding::kDeltaLength:
      return std::make_unique<DeltaLengthStrings>(bytes, most_values);
    case ParquetEncoding::kDeltaStrings:
      return std::make_unique<DeltaStrings>(bytes, most_values);
    case ParquetEncoding::kRle:
      break;
  }
  throw damage("strings in encoding RLE");
}

}  // namespace mpt
