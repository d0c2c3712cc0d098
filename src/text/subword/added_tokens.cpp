#include "text/subword/added_tokens.h"

#include <algorithm>
#include <optional>

#include "core/check.h"
#include "core/text/shown_text.h"
#include "text/subword/vocabulary.h"

namespace mpt {
namespace {

// \w of Rust's regular expressions: Alphabetic, M, Nd, Pc and Join_Control.
const Regex& word_character() {
  static const Regex regex(
      R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169})"
      R"(\x{1F170}-\x{1F189}\x{200C}\x{200D}])",
      RegexSyntax::kOniguruma);
  return regex;
}

const Regex& space() {
  static const Regex regex(R"(\s)", RegexSyntax::kOniguruma);
  return regex;
}

bool begins_with(const Regex& character, std::string_view text, size_t at) {
  if (at >= text.size()) return false;
  size_t end = at + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return character.find(text.substr(at, end - at), 0).has_value();
}

size_t character_before(std::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

// Does not search before `from`.
size_t space_begin(std::string_view text, size_t end, size_t from) {
  while (end > from && begins_with(space(), text, character_before(text, end)))
    end = character_before(text, end);
  return end;
}

size_t space_end(std::string_view text, size_t begin) {
  while (begins_with(space(), text, begin)) do {
      ++begin;
    } while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80);
  return begin;
}

bool is_single_word(std::string_view text, size_t begin, size_t end) {
  const bool before =
      begin > 0 && begins_with(word_character(), text, character_before(text, begin));
  return !before && !begins_with(word_character(), text, end);
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer)
    : tokens_(std::move(tokens)) {
  constexpr size_t kMostBytes = size_t{16} << 20;
  std::ranges::sort(tokens_, {}, &AddedToken::id);
  size_t bytes = 0;
  for (const AddedToken& token : tokens_) {
    const auto place = int32_t(looked_for_.size());
    looked_for_.push_back(token.normalized ? normalizer.apply(token.content) : token.content);
    bytes += looked_for_.back().size();
    if (looked_for_.back().size() > kMostPieceBytes || bytes > kMostBytes)
      throw error(
          "the added token '{}', as it is looked for, has {} bytes, those up to it {}; at most {} "
          "and {} are accepted",
          shortened(token.content, 60), looked_for_.back().size(), bytes, kMostPieceBytes,
          kMostBytes);
    if (!looked_for_.back().empty())
      (token.normalized ? in_normalized_ : in_text_).insert(looked_for_.back(), place);
  }
}

const AddedToken* AddedTokens::find(int64_t id) const {
  const auto found = std::ranges::lower_bound(tokens_, id, {}, &AddedToken::id);
  return found == tokens_.end() || found->id != id ? nullptr : &*found;
}

const std::string& AddedTokens::decoded_text(const AddedToken& token) const {
  return looked_for_[size_t(&token - tokens_.data())];
}

// Takes the longest of the matches that begin first; the search resumes after it even if it is
// rejected. White space that a token absorbs may already belong to the preceding one.
void AddedTokens::append_matches(const TextPiece& piece, const ByteTrie& contents,
                                 SpecialTokens special, std::vector<TextPiece>& out) const {
  const std::string_view text = piece.text;
  const auto append = [&](size_t begin, size_t end, int32_t id) {
    if (begin < end)
      out.push_back({.text = text.substr(begin, end - begin),
                     .token = id,
                     .at_start = piece.at_start && begin == 0});
  };
  size_t done = 0, spaces_end = 0;  // end of the white space last scanned
  for (size_t at = 0; !contents.empty() && (at = contents.next_begin(text, at)) < text.size();) {
    size_t bytes = 0;
    int32_t place = 0;
    contents.prefixes(text.substr(at), [&](size_t length, int32_t value) {
      bytes = length;
      place = value;
    });
    if (bytes == 0) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + bytes;
    at = end;
    const AddedToken& token = tokens_[size_t(place)];
    if (token.special && special == SpecialTokens::kText) continue;
    if (token.single_word && !is_single_word(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(space_begin(text, begin, done), done);
    if (token.rstrip) end = spaces_end = end > spaces_end ? space_end(text, end) : spaces_end;
    append(done, begin, -1);
    append(begin, end, token.id);
    done = end;
  }
  append(done, text.size(), -1);
}

void AddedTokens::split(std::string_view text, const Normalizer& normalizer, SpecialTokens special,
                        TextPieces& pieces) const {
  pieces.changed.clear();
  pieces.list.clear();
  const TextPiece whole{.text = text, .token = -1, .at_start = true};
  append_matches(whole, in_text_, special, pieces.list);
  if (normalizer.empty() && in_normalized_.empty()) return;
  pieces.next.clear();
  for (TextPiece& piece : pieces.list) {
    if (piece.token >= 0) {
      pieces.next.push_back(piece);
      continue;
    }
    if (!normalizer.empty()) piece.text = pieces.keep(normalizer.apply(std::string(piece.text)));
    append_matches(piece, in_normalized_, special, pieces.next);
  }
  pieces.list.swap(pieces.next);
}

}  // namespace mpt
