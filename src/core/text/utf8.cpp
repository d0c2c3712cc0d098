#include "core/text/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/text/shown_text.h"

namespace mpt {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Skips eight ASCII bytes at a time: most of a corpus is ASCII.
size_t skip_ascii(std::string_view text, size_t at) {
  while (at + 8 <= text.size()) {
    uint64_t bytes;
    std::memcpy(&bytes, text.data() + at, sizeof bytes);
    if (bytes & 0x8080808080808080u) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

// Byte length of the well-formed multi-byte character at the start of `rest` (Unicode table 3-7); 0
// if there is none.
size_t character_length(std::string_view rest) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(rest[i]); };
  const unsigned char lead = byte(0);
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : (lead & 0xF0) == 0xE0        ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0 || rest.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if (!is_continuation(rest[i])) return 0;
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xED && byte(1) >= 0xA0;
  const bool too_large = lead == 0xF4 && byte(1) >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() > 1) return first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
  return (first < 0x20 && first != '\t' && first != '\n') || first == 0x7F;
}

}  // namespace

size_t valid_utf8_prefix(std::string_view text) {
  size_t at = skip_ascii(text, 0);
  while (at < text.size()) {
    const size_t length = character_length(text.substr(at));
    if (length == 0) return at;
    at = skip_ascii(text, at + length);
  }
  return at;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(kSpace) == std::string_view::npos;
}

std::string_view without_trailing_space(std::string_view text) {
  const size_t last = text.find_last_not_of(kSpace);
  return last == std::string_view::npos ? std::string_view{} : text.substr(0, last + 1);
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  return text.substr(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
}

size_t cut_position(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text.size();
  const size_t space = limit == 0 ? std::string_view::npos : text.find_last_of(kSpace, limit - 1);
  if (space != std::string_view::npos && space + 1 > limit / 2) return space + 1;
  size_t at = limit;
  while (at > 0 && limit - at < 4 && is_continuation(text[at])) --at;
  if (at == 0 || is_continuation(text[at])) at = limit;  // not UTF-8: cut anywhere
  return std::max<size_t>(at, 1);
}

std::string shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && is_continuation(text[most])) --most;
  return std::string(text.substr(0, most)) + "...";
}

std::string without_controls(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t length = static_cast<unsigned char>(text[0]) < 0x80 ? 1 : character_length(text);
    const std::string_view character = text.substr(0, std::max<size_t>(length, 1));
    shown += length == 0 || is_control(character) ? "\uFFFD" : character;
    text.remove_prefix(character.size());
  }
  return shown;
}

}  // namespace mpt
