#include "evaluation/tasks/python_text.h"

#include <algorithm>
#include <array>
#include <vector>

#include <utf8proc.h>

#include "core/check.h"

namespace mpt {
namespace {

std::vector<char32_t> characters_of(std::string_view text) {
  std::vector<char32_t> characters;
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (auto left = utf8proc_ssize_t(text.size()); left > 0;) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t bytes = utf8proc_iterate(at, left, &code);
    check(bytes > 0, "byte {} of a text is not UTF-8", utf8proc_ssize_t(text.size()) - left);
    characters.push_back(char32_t(code));
    at += bytes;
    left -= bytes;
  }
  return characters;
}

void append(std::string& text, char32_t c) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const utf8proc_ssize_t count = utf8proc_encode_char(utf8proc_int32_t(c), bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), size_t(count));
}

// str.isspace() for one character.
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

size_t last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && !begins_character(text[begin])) --begin;
  return begin;
}

size_t first_character(std::string_view text) {
  size_t end = 1;
  while (end < text.size() && !begins_character(text[end])) ++end;
  return end;
}

// Characters that map to several in title case (Unicode's SpecialCasing.txt); the others map to
// one.
struct Title {
  char32_t character;
  std::u32string_view title;
};
// clang-format off
constexpr std::array kTitles = std::to_array<Title>({
    {0x00DF, U"\x0053\x0073"}, {0x0149, U"\x02BC\x004E"}, {0x01F0, U"\x004A\x030C"},
    {0x0390, U"\x0399\x0308\x0301"}, {0x03B0, U"\x03A5\x0308\x0301"}, {0x0587, U"\x0535\x0582"},
    {0x1E96, U"\x0048\x0331"}, {0x1E97, U"\x0054\x0308"}, {0x1E98, U"\x0057\x030A"},
    {0x1E99, U"\x0059\x030A"}, {0x1E9A, U"\x0041\x02BE"}, {0x1F50, U"\x03A5\x0313"},
    {0x1F52, U"\x03A5\x0313\x0300"}, {0x1F54, U"\x03A5\x0313\x0301"},
    {0x1F56, U"\x03A5\x0313\x0342"}, {0x1FB2, U"\x1FBA\x0345"}, {0x1FB4, U"\x0386\x0345"},
    {0x1FB6, U"\x0391\x0342"}, {0x1FB7, U"\x0391\x0342\x0345"}, {0x1FC2, U"\x1FCA\x0345"},
    {0x1FC4, U"\x0389\x0345"}, {0x1FC6, U"\x0397\x0342"}, {0x1FC7, U"\x0397\x0342\x0345"},
    {0x1FD2, U"\x0399\x0308\x0300"}, {0x1FD3, U"\x0399\x0308\x0301"}, {0x1FD6, U"\x0399\x0342"},
    {0x1FD7, U"\x0399\x0308\x0342"}, {0x1FE2, U"\x03A5\x0308\x0300"},
    {0x1FE3, U"\x03A5\x0308\x0301"}, {0x1FE4, U"\x03A1\x0313"}, {0x1FE6, U"\x03A5\x0342"},
    {0x1FE7, U"\x03A5\x0308\x0342"}, {0x1FF2, U"\x1FFA\x0345"}, {0x1FF4, U"\x038F\x0345"},
    {0x1FF6, U"\x03A9\x0342"}, {0x1FF7, U"\x03A9\x0342\x0345"}, {0xFB00, U"\x0046\x0066"},
    {0xFB01, U"\x0046\x0069"}, {0xFB02, U"\x0046\x006C"}, {0xFB03, U"\x0046\x0066\x0069"},
    {0xFB04, U"\x0046\x0066\x006C"}, {0xFB05, U"\x0053\x0074"}, {0xFB06, U"\x0053\x0074"},
    {0xFB13, U"\x0544\x0576"}, {0xFB14, U"\x0544\x0565"}, {0xFB15, U"\x0544\x056B"},
    {0xFB16, U"\x054E\x0576"}, {0xFB17, U"\x0544\x056D"}
});
// clang-format on

void append_title(std::string& text, char32_t c) {
  const auto* const found = std::ranges::lower_bound(kTitles, c, {}, &Title::character);
  if (found == kTitles.end() || found->character != c)
    return append(text, char32_t(utf8proc_totitle(utf8proc_int32_t(c))));
  for (const char32_t part : found->title) append(text, part);
}

bool is_cased(char32_t c) {
  const auto category = utf8proc_category(utf8proc_int32_t(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

// Returns whether a search for neighbors skips the character (Unicode's Case_Ignorable).
bool is_case_ignorable(char32_t c) {
  switch (utf8proc_category(utf8proc_int32_t(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::u32string_view(
                 U"':.\x00B7\x0387\x055F\x05F4\x2018\x2019\x2024\x2027\xFE13\xFE52"
                 U"\xFE55\xFF07\xFF0E\xFF1A")
                 .find(c) != std::u32string_view::npos;
  }
}

// A capital sigma at the end of a word has its own lower case.
bool is_final_sigma(const std::vector<char32_t>& text, size_t at) {
  const auto is_next = [&](auto begin, auto end) {
    const auto next = std::find_if_not(begin, end, is_case_ignorable);
    return next != end && is_cased(*next);
  };
  return is_next(text.rend() - std::ptrdiff_t(at), text.rend()) &&
         !is_next(text.begin() + std::ptrdiff_t(at) + 1, text.end());
}

void append_lower(std::string& out, const std::vector<char32_t>& text, size_t at) {
  constexpr char32_t kCapitalSigma = 0x3A3, kFinalSigma = 0x3C2, kDottedI = 0x130, kDot = 0x307;
  const char32_t c = text[at];
  if (c == kCapitalSigma && is_final_sigma(text, at)) return append(out, kFinalSigma);
  if (c == kDottedI) {
    append(out, U'i');
    return append(out, kDot);
  }
  append(out, char32_t(utf8proc_tolower(utf8proc_int32_t(c))));
}

}  // namespace

int64_t python_length(std::string_view text) {
  return std::count_if(text.begin(), text.end(), begins_character);
}

std::string_view python_rstrip(std::string_view text) {
  while (!text.empty()) {
    const size_t last = last_character(text);
    if (!is_space(characters_of(text.substr(last)).front())) break;
    text = text.substr(0, last);
  }
  return text;
}

std::string_view python_strip(std::string_view text) {
  text = python_rstrip(text);
  while (!text.empty()) {
    const size_t end = first_character(text);
    if (!is_space(characters_of(text.substr(0, end)).front())) break;
    text = text.substr(end);
  }
  return text;
}

std::string python_capitalize(std::string_view text) {
  const std::vector<char32_t> characters = characters_of(text);
  std::string result;
  for (size_t i = 0; i < characters.size(); ++i)
    i == 0 ? append_title(result, characters[0]) : append_lower(result, characters, i);
  return result;
}

}  // namespace mpt
