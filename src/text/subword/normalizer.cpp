#include "text/subword/normalizer.h"

#include <algorithm>
#include <span>
#include <vector>

#include <utf8proc.h>

#include "core/check.h"
#include "text/subword/later_characters.h"

namespace mpt {
namespace {

struct Character {
  char32_t code = 0;
  size_t bytes = 0;
};

Character character_at(std::string_view text, size_t at) {
  utf8proc_int32_t code = 0;
  const auto* const begin = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const utf8proc_ssize_t bytes =
      utf8proc_iterate(begin + at, utf8proc_ssize_t(text.size() - at), &code);
  check(bytes > 0, "byte {} of a text is not UTF-8", at);
  return {char32_t(code), size_t(bytes)};
}

bool is_in(std::span<const CharacterRange> ranges, char32_t c) {
  const auto after = std::ranges::upper_bound(ranges, c, {}, &CharacterRange::first);
  return after != ranges.begin() && c <= std::prev(after)->last;
}

// Characters below it stay the same unless another one follows.
char32_t first_changing(NormalForm form) {
  return form == NormalForm::kNfc ? 0x300 : form == NormalForm::kNfd ? 0xC0 : 0xA0;
}

bool is_hangul(char32_t c) { return (c >= 0x1100 && c < 0x1200) || (c >= 0xAC00 && c < 0xD7B0); }

// Whether no form changes, reorders or joins it.
bool is_inert(char32_t c) {
  if (is_in(kNeverNormalized, c)) return true;
  const utf8proc_property_t* const property = utf8proc_get_property(utf8proc_int32_t(c));
  return property->combining_class == 0 && property->decomp_seqindex == UINT16_MAX &&
         property->comb_index == UINT16_MAX && !is_hangul(c);
}

utf8proc_option_t options_of(NormalForm form) {
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  return utf8proc_option_t(UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                           (compatible ? UTF8PROC_COMPAT : 0));
}

using Codes = std::vector<utf8proc_int32_t>;

void append_decomposed(char32_t code, utf8proc_option_t options, Codes& out) {
  constexpr utf8proc_ssize_t kMost = 32;  // no character expands to more than 18
  const size_t before = out.size();
  out.resize(before + kMost);
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      utf8proc_int32_t(code), out.data() + before, kMost, options, &boundary);
  check(count >= 0 && count <= kMost, "U+{:04X} becomes {} characters", uint32_t(code), count);
  out.resize(before + size_t(count));
}

// Canonical ordering: sorts adjacent marks of combining class above 0 by class. The library's own
// sort takes quadratic time.
void order_marks(Codes& codes) {
  const auto mark_class = [](utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  };
  const auto is_mark = [&](utf8proc_int32_t code) { return mark_class(code) > 0; };
  for (auto begin = codes.begin(); begin != codes.end();) {
    begin = std::find_if(begin, codes.end(), is_mark);
    const auto end = std::find_if_not(begin, codes.end(), is_mark);
    std::ranges::stable_sort(begin, end, {}, mark_class);
    begin = end;
  }
}

// Like utf8proc_map(), but with order_marks().
void append_form(std::string_view text, NormalForm form, std::string& out) {
  const utf8proc_option_t options = options_of(form);
  Codes codes;
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    append_decomposed(c.code, options, codes);
    at += c.bytes;
  }
  order_marks(codes);
  const auto count = utf8proc_ssize_t(codes.size());
  codes.push_back(0);  // room for the terminating 0
  const utf8proc_ssize_t bytes = utf8proc_reencode(codes.data(), count, options);
  check(bytes >= 0, "a text of {} bytes cannot be brought to {}", text.size(), name_of(form));
  out.append(reinterpret_cast<const char*>(codes.data()), size_t(bytes));
}

}  // namespace

// Spans between characters that nothing joins are normalized separately: most texts have few, and
// the characters that the library leaves unchanged separate their neighbours.
std::string normalized(std::string_view text, NormalForm form) {
  const char32_t first = first_changing(form);
  std::string out;
  out.reserve(text.size());
  size_t copied = 0;  // bytes of `text` already in `out`
  size_t span_start = 0;
  bool changing = false;
  for (size_t at = 0; at < text.size();) {
    const Character c = static_cast<unsigned char>(text[at]) < 0x80
                            ? Character{char32_t(text[at]), 1}
                            : character_at(text, at);
    if (c.code < first || is_inert(c.code)) {
      if (changing) {
        out.append(text.substr(copied, span_start - copied));
        append_form(text.substr(span_start, at - span_start), form, out);
        copied = at;
        changing = false;
      }
      span_start = is_in(kNeverNormalized, c.code) ? at + c.bytes : at;
    } else {
      changing = true;
    }
    at += c.bytes;
  }
  out.append(text.substr(copied, changing ? span_start - copied : text.npos));
  if (changing) append_form(text.substr(span_start), form, out);
  return out;
}

namespace {

void require_bytes(size_t bytes, size_t most) {
  if (bytes > most)
    throw error("the tokenizer makes a text more than 64 times as long: over {} bytes", most);
}

}  // namespace

std::string replaced(std::string_view text, const ReplaceMatches& replace, size_t most) {
  std::string out;
  size_t copied = 0;
  while (const auto match = replace.regex.find(text, copied)) {
    out.append(text.substr(copied, match->begin - copied)).append(replace.by);
    require_bytes(out.size(), most);
    copied = match->end;
  }
  return out.append(text.substr(copied));
}

bool Normalizer::only_forms() const {
  return std::ranges::all_of(
      steps_, [](const Step& step) { return std::holds_alternative<NormalForm>(step); });
}

namespace {

struct Apply {
  std::string text;
  size_t most;

  std::string operator()(NormalForm form) const { return normalized(text, form); }
  std::string operator()(const PrependText& prepend) const {
    return text.empty() ? text : prepend.text + text;
  }
  std::string operator()(const ReplaceMatches& replace) const {
    return replaced(text, replace, most);
  }
};

}  // namespace

std::string Normalizer::apply(std::string text) const {
  const size_t most = most_bytes_of(text.size());
  for (const Step& step : steps_) {
    text = std::visit(Apply{std::move(text), most}, step);
    require_bytes(text.size(), most);
  }
  return text;
}

}  // namespace mpt
