#include "text/sentencepiece/proto_message.h"

namespace mpt {

std::optional<ProtoField> ProtoMessage::next() {
  if (rest_.empty() || damaged_) return std::nullopt;
  const auto key = static_cast<uint32_t>(integer());
  ProtoField field{key >> 3, 0, {}};
  switch (key & 7) {
    case 0:
      field.value = integer();
      break;
    case 1:
      take(8);
      break;
    case 2:
      field.bytes = take(integer());
      break;
    case 5:
      field.bytes = take(4);
      break;
    default:  // groups; no model has any
      damaged_ = true;
  }
  return damaged_ ? std::nullopt : std::optional(field);
}

uint64_t ProtoMessage::integer() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const std::string_view byte = take(1);
    if (byte.empty()) break;
    const auto bits = static_cast<unsigned char>(byte[0]);
    value |= uint64_t{bits & 0x7Fu} << shift;
    if (bits < 0x80) break;
  }
  return value;
}

std::string_view ProtoMessage::take(uint64_t count) {
  damaged_ |= count > rest_.size();
  const std::string_view taken = rest_.substr(0, count);
  rest_.remove_prefix(taken.size());
  return taken;
}

}  // namespace mpt
