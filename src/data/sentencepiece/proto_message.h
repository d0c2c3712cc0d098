// The part of protocol buffers that SentencePiece's model files need: the fields of a message.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace mpt {

// One field of a protocol buffer.
struct ProtoField {
  uint32_t number;
  uint64_t value;          // of a variable-length integer
  std::string_view bytes;  // of a string, a nested message or a float
};

// The fields of one message, in order.
class ProtoMessage {
 public:
  explicit ProtoMessage(std::string_view bytes) : rest_(bytes) {}

  // Nothing at the end, or if the rest is not a valid message.
  std::optional<ProtoField> next();
  // Whether next() ended before the bytes did.
  [[nodiscard]] bool damaged() const { return damaged_; }

 private:
  uint64_t integer();
  std::string_view take(uint64_t count);

  std::string_view rest_;
  bool damaged_ = false;
};

}  // namespace mpt
