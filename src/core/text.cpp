#include "core/text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

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

// Length in bytes of the well-formed multi-byte character at the start of `rest` (Unicode table
// 3-7); 0 if there is none.
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

namespace {
constexpr size_t kMaxLength = 256;  // of compared texts: the cost is quadratic
}

int64_t edit_distance(std::string_view a, std::string_view b) {
  // rows[i][j]: distance between the first i letters of a and the first j of b; only three rows are
  // kept.
  std::vector<int64_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& known) {
  if (name.size() > kMaxLength) return std::nullopt;
  std::optional<std::string> best;
  int64_t best_distance = 0;
  for (const std::string& candidate : known) {
    const int64_t distance = edit_distance(name, candidate);
    const auto longer = static_cast<int64_t>(std::max(name.size(), candidate.size()));
    if (3 * distance > std::max<int64_t>(longer, 3)) continue;
    if (!best || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::vector<std::string> nearest_names(std::string_view name, std::vector<std::string> known,
                                       int64_t count) {
  const auto order = [name = name.substr(0, kMaxLength)](const std::string& candidate) {
    const bool part = candidate.find(name) != std::string::npos;
    return std::pair(part ? 0 : 1, edit_distance(name, candidate));
  };
  std::ranges::stable_sort(known, {}, order);
  known.resize(std::min(known.size(), static_cast<size_t>(count)));
  return known;
}

std::string plain_spelling(std::string_view name) {
  std::string plain(name);
  for (char& c : plain) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return plain;
}

namespace {

bool drop_front(std::string_view& text, std::string_view front) {
  if (!text.starts_with(front)) return false;
  text.remove_prefix(front.size());
  return true;
}

std::string_view without_exception_name(std::string_view text) {
  if (!text.starts_with("[json.exception.")) return text;
  const size_t end = text.find("] ");
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 2);
  drop_front(text, "parse error at ");
  return text;
}

// SentencePiece messages: the kind of failure, "file(line)", "[condition]", and possibly a
// sentence.
std::string_view without_source_file(std::string_view text) {
  for (const std::string_view ending : {".cc(", ".cpp(", ".h("}) {
    if (text.find(ending) == std::string_view::npos) continue;
    const size_t end = text.rfind("] ");
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 2);
    break;
  }
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string library_message(std::string_view what) {
  return shortened(without_source_file(without_exception_name(what)), 300);
}

}  // namespace mpt
