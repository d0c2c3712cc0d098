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

// Of a piece, so that looking for pieces takes time in proportion to a text.
inline constexpr size_t kMostPieceBytes = 4096;

class Vocabulary {
 public:
  // Throws Error if the text or the id has been added before, the text has more than
  // kMostPieceBytes, or the id is outside of [0, id_limit()).
  void add(std::string text, int64_t id);
  // Of all ids: twice as many as there will be pieces, and some.
  explicit Vocabulary(size_t pieces = 0);
  [[nodiscard]] int64_t id_limit() const { return id_limit_; }

  // The largest id and 1. Ids between may have no piece.
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(texts_.size()); }
  [[nodiscard]] size_t pieces() const { return ids_.size(); }
  // -1 if there is none.
  [[nodiscard]] int32_t id_of(std::string_view text) const;
  // Null for an id without a piece.
  [[nodiscard]] const std::string* text_of(int64_t id) const;

 private:
  int64_t id_limit_;
  std::unordered_map<std::string, int32_t, SeededTextHash, std::equal_to<>> ids_;
  std::vector<const std::string*> texts_;  // of ids_, whose keys stay where they are
};

// Of the character of UTF-8 that begins with this byte.
inline size_t character_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The byte that a piece such as "<0x0A>" stands for, or -1.
int byte_of_piece(std::string_view piece);

// Bytes spelled as printable characters, as GPT-2's vocabulary has them.

std::string byte_level_text(std::string_view bytes);
// nullopt if the text has other characters.
std::optional<std::string> bytes_of_byte_level(std::string_view text);

}  // namespace mpt
