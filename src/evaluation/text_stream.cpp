#include "evaluation/text_stream.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/text/utf8.h"

namespace mpt {
namespace {

// The tokenizer decodes each byte of an incomplete character to this character.
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr int kMostIncompleteBytes = 3;

// Length of the prefix that further tokens cannot change.
size_t settled(std::string_view text) {
  for (int i = 0; i < kMostIncompleteBytes && text.ends_with(kReplacement); ++i)
    text.remove_suffix(kReplacement.size());
  return text.size();
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const int32_t> prompt)
    : tokenizer_(tokenizer),
      tokens_(prompt.begin(), prompt.end()),
      shown_(tokenizer.decode(prompt)) {}

// Decodes all tokens each time, since a token's text depends on those before it. The cost is small
// compared with the model's.
std::string TextStream::add(int32_t token) {
  tokens_.push_back(token);
  const std::string text = tokenizer_.decode(tokens_);
  return take(text, settled(text));
}

std::string TextStream::finish() {
  const std::string text = tokenizer_.decode(tokens_);
  return text.substr(std::min(shown_.size(), text.size()));
}

// Some decoders replace a whole run of bytes while its last character is incomplete: nothing is
// shown until the run extends the text already shown.
std::string TextStream::take(const std::string& text, size_t end) {
  if (end <= shown_.size() || !text.starts_with(shown_)) return "";
  const std::string piece = text.substr(shown_.size(), end - shown_.size());
  shown_ += piece;
  return piece;
}

}  // namespace mpt
