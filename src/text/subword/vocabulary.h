// The pieces of a tokenizer and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/seeded_hash.h"

namespace mpt {

// Limits piece length, so that the search for pieces is linear in the text.
inline constexpr size_t kMostPieceBytes = 4096;

class Vocabulary {
 public:
  // Throws Error if the text or id has already been added, the text exceeds kMostPieceBytes, or the
  // id is outside [0, id_limit()).
  void add(std::string text, int64_t id);
  // Allows ids up to somewhat more than twice the expected number of pieces.
  explicit Vocabulary(size_t pieces = 0);
  [[nodiscard]] int64_t id_limit() const { return id_limit_; }

  // Largest id plus 1. Ids in between may have no piece.
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(texts_.size()); }
  [[nodiscard]] size_t pieces() const { return ids_.size(); }
  // Returns -1 if absent.
  [[nodiscard]] int32_t id_of(std::string_view text) const;
  // Null for an id without a piece.
  [[nodiscard]] const std::string* text_of(int64_t id) const;

 private:
  int64_t id_limit_;
  std::unordered_map<std::string, int32_t, SeededTextHash, std::equal_to<>> ids_;
  std::vector<const std::string*> texts_;  // keys of ids_; their addresses are stable
};

// Length of the UTF-8 character that begins with this byte.
inline size_t character_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Byte that a piece such as "<0x0A>" stands for, or -1.
int byte_of_piece(std::string_view piece);

}  // namespace mpt
