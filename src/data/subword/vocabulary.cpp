#include "data/subword/vocabulary.h"

#include <array>

#include "core/check.h"

namespace mpt {
namespace {

constexpr int64_t kMostSpareIds = 65'536;
constexpr size_t kCharacters = 256 + 68;  // those of bytes are below

bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Printable bytes of Latin-1 stand for themselves, the others in turn for characters from 256 on.
constexpr int kNone = -1;
struct ByteCharacters {
  std::array<int, 256> character{};
  std::array<int, kCharacters> byte{};

  ByteCharacters() {
    byte.fill(kNone);
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      character[size_t(b)] = is_printable(b) ? b : next++;
      byte[size_t(character[size_t(b)])] = b;
    }
  }
};

const ByteCharacters& byte_characters() {
  static const ByteCharacters all;
  return all;
}

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

std::string byte_level_text(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const int c = byte_characters().character[static_cast<unsigned char>(byte)];
    if (c < 0x80) {
      text += char(c);
    } else {
      text += char(0xC0 | c >> 6);
      text += char(0x80 | (c & 0x3F));
    }
  }
  return text;
}

std::optional<std::string> bytes_of_byte_level(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned c = static_cast<unsigned char>(text[i]);
    if (c >= 0x80) {
      if (c >= 0xE0 || i + 1 == text.size()) return std::nullopt;
      c = (c & 0x1F) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3F);
    }
    const int byte = c < kCharacters ? byte_characters().byte[c] : kNone;
    if (byte == kNone) return std::nullopt;
    bytes += char(byte);
  }
  return bytes;
}

}  // namespace mpt
