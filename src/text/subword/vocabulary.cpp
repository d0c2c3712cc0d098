#include "text/subword/vocabulary.h"

#include "core/check.h"

namespace mpt {
namespace {

constexpr int64_t kMostSpareIds = 65'536;

}  // namespace

Vocabulary::Vocabulary(size_t pieces) : id_limit_(2 * int64_t(pieces) + kMostSpareIds) {
  ids_.reserve(pieces);
}

void Vocabulary::add(std::string text, int64_t id) {
  if (text.size() > kMostPieceBytes)
    throw error("the piece of id {} has {} bytes; at most {} are accepted", id, text.size(),
                kMostPieceBytes);
  if (id < 0 || id >= id_limit_)
    throw error("'{}' has the id {}; expected 0 to {} in a vocabulary of this size", text, id,
                id_limit_ - 1);
  if (size_t(id) >= texts_.size()) texts_.resize(size_t(id) + 1);
  if (texts_[size_t(id)] != nullptr)
    throw error("'{}' and '{}' have the same id {}", *texts_[size_t(id)], text, id);
  const auto [entry, is_new] = ids_.emplace(std::move(text), int32_t(id));
  if (!is_new) throw error("'{}' is there twice, as {} and {}", entry->first, entry->second, id);
  texts_[size_t(id)] = &entry->first;
}

int32_t Vocabulary::id_of(std::string_view text) const {
  const auto entry = ids_.find(text);
  return entry == ids_.end() ? -1 : entry->second;
}

const std::string* Vocabulary::text_of(int64_t id) const {
  return id < 0 || id >= size() ? nullptr : texts_[size_t(id)];
}

int byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  int byte = 0;
  for (const char c : piece.substr(3, 2)) {
    const size_t digit = std::string_view("0123456789abcdefABCDEF").find(c);
    if (digit == std::string_view::npos) return -1;
    byte = byte * 16 + int(digit < 16 ? digit : digit - 6);
  }
  return byte;
}

}  // namespace mpt
