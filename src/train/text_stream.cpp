#include "train/text_stream.h"

#include <algorithm>
#include <string_view>

namespace mpt {
namespace {

// The tokenizer spells each byte of an incomplete character as this one.
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr int kMostIncompleteBytes = 3;

// Length of the text whose characters no further token can change.
size_t settled(std::string_view text) {
  for (int i = 0; i < kMostIncompleteBytes && text.ends_with(kReplacement); ++i)
    text.remove_suffix(kReplacement.size());
  return text.size();
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const int32_t> prompt)
    : tokenizer_(tokenizer), tokens_(prompt.begin(), prompt.end()), shown_(tokenizer.decode(prompt).size()) {}

// Decodes all tokens each time, since the spelling of one depends on those before it; this is little beside
// the model, which attends to all of them too.
std::string TextStream::add(int32_t token) {
  tokens_.push_back(token);
  const std::string text = tokenizer_.decode(tokens_);
  return take(text, settled(text));
}

std::string TextStream::finish() {
  const std::string text = tokenizer_.decode(tokens_);
  return take(text, text.size());
}

std::string TextStream::take(const std::string& text, size_t end) {
  if (end <= shown_) return "";
  const std::string piece = text.substr(shown_, end - shown_);
  shown_ = end;
  return piece;
}

}  // namespace mpt
