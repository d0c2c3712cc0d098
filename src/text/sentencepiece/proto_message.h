// Minimal protocol-buffer reader for SentencePiece model files: iterates a message's fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace mpt {

// One field of a protocol buffer.
struct ProtoField {
  uint32_t number;
  uint64_t value;          // for a variable-length integer
  std::string_view bytes;  // for a string, a nested message or a float
};

// The fields of one message, in order.
class ProtoMessage {
 public:
  explicit ProtoMessage(std::string_view bytes) : rest_(bytes) {}

  // Returns nullopt at the end, or if the rest is not a valid message.
  std::optional<ProtoField> next();
  // Whether next() stopped before the end of the bytes.
  [[nodiscard]] bool damaged() const { return damaged_; }

 private:
  uint64_t integer();
  std::string_view take(uint64_t count);

  std::string_view rest_;
  bool damaged_ = false;
};

}  // namespace mpt
