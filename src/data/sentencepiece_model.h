// The parts of a SentencePiece model file that are looked at without the library.
//
// A model is one protocol buffer; the numbers of its fields are from sentencepiece_model.proto.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mpt {

// One field of a protocol buffer.
struct ProtoField {
  uint32_t number;
  uint64_t value;          // of a variable-length integer
  std::string_view bytes;  // of a string or a nested message
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

// What the library takes on trust, although a wrong value makes it read outside its memory: a
// description of the first such defect in a model, or "".
//
//   character maps   (normalization) lists of texts with a double array (Darts) that finds them
//   user pieces      at most 64 of them may begin one another
std::string defect_of_model(std::string_view model);

}  // namespace mpt
