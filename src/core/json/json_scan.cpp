#include "core/json/json_scan.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/text/shown_text.h"
#include "core/text/utf8.h"

namespace mpt {
namespace {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The character of a simple escape; 0 if invalid.
char escaped_character(char c) {
  constexpr std::string_view kLetters = "\"\\/bfnrt", kCharacters = "\"\\/\b\f\n\r\t";
  const size_t at = kLetters.find(c);
  return at == std::string_view::npos ? '\0' : kCharacters[at];
}

constexpr bool is_high_surrogate(uint32_t code) { return code >= 0xD800 && code < 0xDC00; }
constexpr bool is_low_surrogate(uint32_t code) { return code >= 0xDC00 && code < 0xE000; }

// Encodes surrogates like other three-byte codes.
void append_code(uint32_t code, std::string& text) {
  const auto continuation = [&](int shift) { text += char(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    text += char(code);
  } else if (code < 0x800) {
    text += char(0xC0 | code >> 6);
    continuation(0);
  } else if (code < 0x10000) {
    text += char(0xE0 | code >> 12);
    continuation(6);
    continuation(0);
  } else {
    text += char(0xF0 | code >> 18);
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

class JsonScanner {
 public:
  JsonScanner(std::string_view text, JsonSax& events)
      : text_(text), events_(events), at_(text.size() - without_byte_order_mark(text).size()) {}

  void scan() {
    take_value();
    while (!open_.empty()) go_on();
    skip_space();
    if (at_ < text_.size()) fail("the end");
  }

 private:
  static constexpr auto kAnyNumber = static_cast<size_t>(-1);  // element count unknown

  [[noreturn]] void fail(std::string_view expected) const {
    const std::string found =
        at_ < text_.size() ? fmt::format("'{}'", shortened(text_.substr(at_), 20)) : "the end";
    throw error("column {}: expected {}, found {}", at_ + 1, expected, found);
  }

  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  bool take_after_space(std::string_view token) {
    skip_space();
    return take(token);
  }

  // Continues in the innermost container, after its bracket or one of its values.
  void go_on() {
    const bool is_object = open_.back();
    if (take_after_space(is_object ? "}" : "]")) return close();
    if (!std::exchange(just_opened_, false) && !take(","))
      fail(is_object ? "a comma or '}'" : "a comma or ']'");
    if (is_object) take_key();
    take_value();
  }
  void open_object() {
    events_.start_object(kAnyNumber);
    open_.push_back(true);
    just_opened_ = true;
  }
  void open_list() {
    events_.start_array(kAnyNumber);
    open_.push_back(false);
    just_opened_ = true;
  }
  void close() {
    if (open_.back())
      events_.end_object();
    else
      events_.end_array();
    open_.pop_back();
    just_opened_ = false;
  }

  void take_key() {
    if (!take_after_space("\"")) fail("a key in quotes");
    std::string key = rest_of_string();
    events_.key(key);
    if (!take_after_space(":")) fail("':'");
  }
  void take_value() {
    skip_space();
    if (take("{")) return open_object();
    if (take("[")) return open_list();
    if (take("\"")) {
      std::string text = rest_of_string();
      events_.string(text);
    } else if (take("null")) {
      events_.null();
    } else if (take("true")) {
      events_.boolean(true);
    } else if (take("false")) {
      events_.boolean(false);
    } else {
      take_number();
    }
  }

  void take_number() {
    const size_t begin = at_;
    if (take("NaN")) return give(std::numeric_limits<double>::quiet_NaN());
    const bool negative = take("-");
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (take("Infinity")) return give(negative ? -kInfinity : kInfinity);
    if (at_ == text_.size() || !is_digit(text_[at_])) fail("a value");
    if (!take("0")) skip_digits();
    const size_t whole_end = at_;
    if (take(".")) skip_digits();
    if (take("e") || take("E")) {
      if (!take("+")) take("-");
      skip_digits();
    }
    const std::string_view number = text_.substr(begin, at_ - begin);
    if (at_ > whole_end || !give_whole(number)) give(as_double(number));
  }
  void skip_digits() {
    if (at_ == text_.size() || !is_digit(text_[at_])) fail("a digit");
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  }
  void give(double number) { events_.number_float(number, ""); }
  // Returns false if it takes more than 64 bits.
  bool give_whole(std::string_view number) {
    const bool negative = number.starts_with('-');
    const char* const end = number.data() + number.size();
    int64_t with_sign = 0;
    uint64_t without = 0;
    if (negative && std::from_chars(number.data(), end, with_sign).ec == std::errc())
      return events_.number_integer(with_sign), true;
    if (!negative && std::from_chars(number.data(), end, without).ec == std::errc())
      return events_.number_unsigned(without), true;
    return false;
  }
  // from_chars() does not say whether a number is too large or too small.
  static double as_double(std::string_view number) {
    double value = 0;
    const char* const end = number.data() + number.size();
    if (std::from_chars(number.data(), end, value).ec == std::errc()) return value;
    return std::strtod(std::string(number).c_str(), nullptr);
  }

  // Continues after the opening quote.
  std::string rest_of_string() {
    std::string text;
    for (;;) {
      const size_t begin = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 0x20)
        ++at_;
      text.append(text_, begin, at_ - begin);
      if (take("\"")) return text;
      if (!take("\\")) fail(at_ < text_.size() ? "a control character as an escape" : "'\"'");
      take_escape(text);
    }
  }
  void take_escape(std::string& text) {
    if (take("u")) return append_code(take_code(), text);
    const char c = at_ < text_.size() ? escaped_character(text_[at_]) : '\0';
    if (c == '\0') fail("one of \"\\/bfnrtu");
    text += c;
    ++at_;
  }
  // Reads one escape, or both of a surrogate pair.
  uint32_t take_code() {
    const uint32_t high = take_hex();
    const size_t behind = at_;
    if (!is_high_surrogate(high) || !take("\\u")) return high;
    const uint32_t low = take_hex();
    if (is_low_surrogate(low)) return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    at_ = behind;
    return high;
  }
  uint32_t take_hex() {
    constexpr size_t kDigits = 4;
    const std::string_view digits = text_.substr(at_, kDigits);
    uint32_t code = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (read.ptr != digits.data() + kDigits) fail("four hexadecimal digits");
    at_ += kDigits;
    return code;
  }

  std::string_view text_;
  JsonSax& events_;
  size_t at_;
  std::vector<bool> open_;  // per open container: whether it is an object
  bool just_opened_ = false;
};

}  // namespace

void scan_json(std::string_view text, JsonSax& events) { JsonScanner(text, events).scan(); }

std::string defect_of_text(std::string_view text) {
  const size_t valid = valid_utf8_prefix(text);
  if (valid == text.size()) return "";
  const auto byte = [&](size_t i) {
    return valid + i < text.size() ? uint32_t(static_cast<unsigned char>(text[valid + i])) : 0U;
  };
  if (byte(0) == 0xED && byte(1) >= 0xA0 && byte(1) < 0xC0)
    return fmt::format("has half of a surrogate pair at byte {}, \\u{:04x}, which is no character",
                       valid, 0xD000 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F));
  return fmt::format("is not UTF-8 at byte {} (0x{:02x})", valid, byte(0));
}

}  // namespace mpt
