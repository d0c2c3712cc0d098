#include "text/byte_level.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mpt {
namespace {

constexpr size_t kCharacters = 256 + 68;  // all characters of bytes are below

bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Printable Latin-1 bytes map to themselves, the others in order to characters from 256 on.
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
