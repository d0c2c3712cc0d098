#include "text/subword/regex_syntax.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "core/check.h"
#include "core/text/utf8.h"
#include "text/subword/later_characters.h"

namespace mpt {
namespace {

// Unicode's White_Space; PCRE2's \s also has U+180E.
constexpr std::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNoSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{d7ff}\x{e000}-\x{10ffff})";

constexpr std::array<std::string_view, 35> kProperties{
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd",
    "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm",
    "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Han"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string escaped(char32_t c) { return fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(c)); }

// Members of a property, as written within brackets.
std::string members_of(std::string_view property) {
  std::string members = property == "Han" ? "\\p{sc:Han}" : fmt::format("\\p{{{}}}", property);
  for (const CharacterRange& range : kLaterCharacters)
    if (range.property == property ||
        (property.size() == 1 && range.property[0] == property[0] && range.property != "Han"))
      members += escaped(range.first) + "-" + escaped(range.last);
  return members;
}

class Translator {
 public:
  Translator(std::string_view pattern, RegexSyntax syntax) : rest_(pattern), syntax_(syntax) {
    size_ = pattern.size();
  }

  std::string run() {
    while (!rest_.empty()) step();
    return std::move(out_);
  }

 private:
  // One character, or a set of them as written within brackets.
  struct Item {
    std::optional<char32_t> character;
    std::string members;
    bool negated = false;
  };

  [[nodiscard]] bool rust() const { return syntax_ == RegexSyntax::kRust; }

  [[noreturn]] void refuse(std::string_view found, std::string_view expected) const {
    throw error("byte {}: {} is not read here; {}", size_ - rest_.size(), found, expected);
  }

  bool take(std::string_view begin) {
    const bool there = rest_.starts_with(begin);
    if (there) rest_.remove_prefix(begin.size());
    return there;
  }

  void step() {
    switch (rest_[0]) {
      case '\\':
        if (!anchor()) put(escape());
        break;
      case '[':
        rest_.remove_prefix(1);
        put(bracket(0));
        break;
      case '(':
        open();
        break;
      case ')':
        if (!caseless_.empty()) caseless_.pop_back();
        copy();
        break;
      case '{':
        interval();
        break;
      case '^':
        rest_.remove_prefix(1);
        out_ += rust() ? "^" : "(?m:^)";
        break;
      case '$':
        rest_.remove_prefix(1);
        out_ += rust() ? "\\z" : "(?m:$)";
        break;
      case '.':
        rest_.remove_prefix(1);
        out_ += "[^\\n]";
        break;
      case '|':
      case '*':
      case '+':
      case '?':
        copy();
        break;
      default:
        out_ += escaped(character());
    }
  }

  void copy() {
    out_ += rest_[0];
    rest_.remove_prefix(1);
  }

  void put(const Item& item) {
    if (item.character)
      out_ += escaped(*item.character);
    else
      out_ += (item.negated ? "[^" : "[") + item.members + "]";
  }

  bool anchor() {
    for (const std::string_view name : {"\\A", "\\z"})
      if (take(name)) {
        out_ += name;
        return true;
      }
    return false;
  }

  void open() {
    if (!rest_.starts_with("(?")) {
      if (rest_.starts_with("(*")) refuse("(*", "expected a group");
      caseless_.push_back(is_caseless());
      return copy();
    }
    for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"})
      if (take(kind)) {
        caseless_.push_back(is_caseless());
        out_ += kind;
        return;
      }
    if (!take("(?i:"))
      refuse(rest_.substr(0, 3), "expected (?:, (?i:, (?=, (?!, (?<=, (?<! or (?>");
    caseless_.push_back(true);
    out_ += "(?i:";
  }

  [[nodiscard]] bool is_caseless() const { return !caseless_.empty() && caseless_.back(); }

  std::string_view digits() {
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_digit);
    const std::string_view found = rest_.substr(0, size_t(end - rest_.begin()));
    rest_.remove_prefix(found.size());
    return found;
  }

  // {n}, {n,}, {,m}, {n,m}; any other brace is literal.
  void interval() {
    const std::string_view whole = rest_;
    rest_.remove_prefix(1);
    const std::string_view least = digits();
    const bool range = take(",");
    const std::string_view most = range ? digits() : "";
    const bool complete = take("}") && (!least.empty() || !most.empty());
    if (!complete || (rust() && least.empty())) {
      rest_ = whole;
      if (rust()) refuse("{", "expected {n}, {n,} or {n,m}; a brace is \\{");
      rest_.remove_prefix(1);
      out_ += "\\{";
      return;
    }
    out_ += fmt::format("{{{}{}{}}}", least.empty() ? "0" : least, range ? "," : "", most);
    if (!rust() && (rest_.starts_with('+') || (!range && rest_.starts_with('?'))))
      refuse(fmt::format("{} after an interval", rest_.substr(0, 1)),
             "its meaning differs between libraries; write a group");
  }

  char32_t character() {
    const auto byte = [&](size_t i) { return char32_t(static_cast<unsigned char>(rest_[i])); };
    const char32_t lead = byte(0);
    const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    char32_t c = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t i = 1; i < length; ++i) c = c << 6 | (byte(i) & 0x3F);
    rest_.remove_prefix(length);
    return c;
  }

  Item escape() {
    const std::string_view whole = rest_;
    rest_.remove_prefix(1);
    if (rest_.empty()) refuse("a single \\ at the end", "expected \\\\");
    const char c = rest_[0];
    if (!is_letter(c) && !is_digit(c)) return {character(), ""};
    rest_.remove_prefix(1);
    constexpr std::string_view kNames = "rntfvae", kValues = "\r\n\t\f\v\a\x1B";
    if (const size_t at = kNames.find(c); at != std::string_view::npos)
      return {char32_t(kValues[at]), ""};
    if (c == 's' || c == 'S') return {{}, std::string(c == 's' ? kSpace : kNoSpace)};
    if (c == 'd') return {{}, members_of("Nd")};
    if (c == 'D') return {{}, members_of("Nd"), true};
    if (c == 'p' || c == 'P') return property(c == 'P');
    if (c == 'x' || c == 'u') return {code_point(c), ""};
    rest_ = whole;
    refuse(whole.substr(0, 2),
           "expected \\s \\S \\d \\D \\p{..} \\P{..} \\x{..} \\r \\n \\t \\f \\v \\A \\z, or a "
           "backslash before a sign");
  }

  Item property(bool negated) {
    std::string_view name = rest_.substr(0, 1);
    if (take("{")) {
      if (take("^")) negated = !negated;
      const size_t end = std::min(rest_.find('}'), rest_.size());
      name = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
    } else if (rust()) {
      rest_.remove_prefix(name.size());
    } else {
      refuse("\\p without a brace", "expected \\p{L}");
    }
    if (std::ranges::find(kProperties, name) == kProperties.end())
      refuse(fmt::format("the property '{}'", name),
             fmt::format("expected one of {}", fmt::join(kProperties, " ")));
    if (is_caseless())
      refuse("a property within (?i:", "libraries differ in which characters that matches");
    return {{}, members_of(name), negated};
  }

  char32_t code_point(char kind) {
    std::string_view digits = rest_.substr(0, kind == 'x' ? 2 : 4);
    if (take("{")) {
      digits = rest_.substr(0, std::min(rest_.find('}'), rest_.size()));
      if (digits.size() == rest_.size()) refuse("\\x{ without a }", "expected \\x{20AC}");
      rest_.remove_prefix(1);
    }
    rest_.remove_prefix(digits.size());
    uint32_t value = 0;
    const bool right =
        !digits.empty() && digits.size() <= 6 && std::ranges::all_of(digits, [&](char c) {
          const size_t at = std::string_view("0123456789abcdefABCDEF").find(c);
          value = value * 16 + uint32_t(at < 16 ? at : at - 6);
          return at != std::string_view::npos;
        });
    if (!right || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000) ||
        (kind == 'x' && digits.size() == 2 && value > 0x7F))
      refuse(fmt::format("\\{}{}", kind, digits), "expected the number of a character in hex");
    return value;
  }

  // Parses from after "[" to its "]". Nested brackets add their members.
  Item bracket(int depth) {
    Item set;
    set.negated = take("^");
    if (depth > 0 && set.negated) refuse("[^ within brackets", "expected [ of characters");
    if (depth > 8) refuse("[", "at most 8 brackets within each other are");
    if (rest_.starts_with("]")) refuse("an empty class", "a bracket is \\]");
    while (!take("]")) {
      if (rest_.empty()) refuse("[ without a ]", "expected both");
      for (const std::string_view sign : {"&&", "--", "~~", "[:"})
        if (rest_.starts_with(sign)) refuse(sign, "expected characters, ranges and escapes");
      if (take("[")) {
        set.members += bracket(depth + 1).members;
        continue;
      }
      set.members += element();
    }
    return set;
  }

  std::string element() {
    const Item first = rest_[0] == '\\' ? escape() : Item{character(), ""};
    if (first.negated) refuse("a negated property within brackets", "expected it outside of them");
    if (!first.character) return first.members;
    if (!rest_.starts_with("-") || rest_.starts_with("-]")) return escaped(*first.character);
    rest_.remove_prefix(1);
    if (rest_.empty()) refuse("a range without an end", "expected a-z");
    const Item last = rest_[0] == '\\' ? escape() : Item{character(), ""};
    if (!last.character || *last.character < *first.character)
      refuse("a range that does not end at a later character", "expected a-z");
    return escaped(*first.character) + "-" + escaped(*last.character);
  }

  std::string_view rest_;
  RegexSyntax syntax_;
  size_t size_ = 0;
  std::string out_;
  std::vector<bool> caseless_;  // per open group
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern, RegexSyntax syntax) {
  const size_t valid = valid_utf8_prefix(pattern);
  if (valid < pattern.size()) throw error("byte {}: not UTF-8", valid);
  return Translator(pattern, syntax).run();
}

}  // namespace mpt
