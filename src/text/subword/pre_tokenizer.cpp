#include "text/subword/pre_tokenizer.h"

#include <algorithm>

#include "core/check.h"

namespace mpt {
namespace {

struct Part {
  size_t begin, end;
  bool match;
};

// Matches and the text between them; together they cover the text.
std::vector<Part> parts_of(std::string_view text, const Regex& regex, bool invert) {
  std::vector<Part> parts;
  size_t end = 0;
  while (const auto match = regex.find(text, end)) {
    if (end < match->begin) parts.push_back({end, match->begin, invert});
    parts.push_back({match->begin, match->end, !invert});
    end = match->end;
  }
  if (end < text.size()) parts.push_back({end, text.size(), invert});
  return parts;
}

// Joins adjacent parts for which `joins(previous, part)` holds.
template <class F>
std::vector<Part> joined(const std::vector<Part>& parts, const F& joins) {
  std::vector<Part> result;
  bool previous = false;
  for (const Part& part : parts) {
    if (joins(previous, part.match) && !result.empty())
      result.back().end = part.end;
    else
      result.push_back(part);
    previous = part.match;
  }
  return result;
}

std::vector<Part> merged_with_next(std::vector<Part> parts) {
  std::vector<Part> result;
  bool previous = false;
  std::ranges::reverse(parts);
  for (const Part& part : parts) {
    if (part.match && !previous && !result.empty())
      result.back().begin = part.begin;
    else
      result.push_back(part);
    previous = part.match;
  }
  std::ranges::reverse(result);
  return result;
}

std::vector<Part> arranged(std::vector<Part> parts, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      std::erase_if(parts, [](const Part& part) { return part.match; });
      return parts;
    case SplitBehavior::kIsolated:
      return parts;
    case SplitBehavior::kContiguous:
      return joined(parts, [](bool previous, bool match) { return match == previous; });
    case SplitBehavior::kMergedWithPrevious:
      return joined(parts, [](bool previous, bool match) { return match && !previous; });
    case SplitBehavior::kMergedWithNext:
      return merged_with_next(std::move(parts));
  }
  return parts;
}

// Appends the result of a step on a word to pieces.next.
struct Splitter {
  TextPieces& pieces;
  TextPiece word;

  void append(size_t begin, size_t end) const {
    pieces.next.push_back(
        {.text = word.text.substr(begin, end - begin), .at_start = word.at_start && begin == 0});
  }

  void operator()(const SplitText& split) const {
    if (split.behavior == SplitBehavior::kIsolated) return isolate(split.regex);
    for (const Part& part :
         arranged(parts_of(word.text, split.regex, split.invert), split.behavior))
      append(part.begin, part.end);
  }

  void isolate(const Regex& regex) const {
    size_t end = 0;
    while (end < word.text.size()) {
      const auto match = regex.find(word.text, end);
      if (!match) break;
      if (end < match->begin) append(end, match->begin);
      append(match->begin, match->end);
      end = match->end;
    }
    if (end < word.text.size()) append(end, word.text.size());
  }

  void operator()(const MatchText& split) const {
    for (size_t end = 0; end < word.text.size();) {
      const auto match = split.regex.find(word.text, end);
      if (!match || match->begin > end)
        throw error("the pattern of the tokenizer leaves out the byte {:#04x} at {} of a text",
                    static_cast<unsigned char>(word.text[end]), end);
      append(end, match->end);
      end = match->end;
    }
  }

  void operator()(const PrefixSpace&) const {
    TextPiece piece = word;
    if (!piece.text.starts_with(' '))
      piece.text = pieces.keep(std::string(1, ' ').append(piece.text));
    pieces.next.push_back(piece);
  }

  void operator()(const Metaspace& space) const {
    std::string text;
    text.reserve(word.text.size() + 16);
    for (const char c : word.text)
      if (c == ' ')
        text += space.replacement;
      else
        text += c;
    const bool wanted = space.prepend == PrependScheme::kAlways ||
                        (space.prepend == PrependScheme::kFirst && word.at_start);
    if (wanted && !text.starts_with(space.replacement)) text.insert(0, space.replacement);
    const Splitter within{
        pieces, {.text = pieces.keep(std::move(text)), .token = -1, .at_start = word.at_start}};
    if (!space.split) return within.append(0, within.word.text.size());
    for (const Part& part :
         arranged(parts_of(within.word.text, space.regex, false), SplitBehavior::kMergedWithNext))
      within.append(part.begin, part.end);
  }
};

// Whether a step, after the preceding ones, keeps the text of words.
struct KeepsText {
  bool in_words = false;  // the text has been split

  bool operator()(const SplitText& split) {
    in_words = true;
    return split.behavior != SplitBehavior::kRemoved;
  }
  bool operator()(const MatchText&) { return in_words = true; }
  bool operator()(const PrefixSpace&) const { return !in_words; }
  bool operator()(const Metaspace& space) {
    const bool adds_within = in_words && space.prepend == PrependScheme::kAlways;
    in_words |= space.split;
    return !adds_within;
  }
};

}  // namespace

bool PreTokenizer::keeps_text() const {
  KeepsText keeps;
  return std::ranges::all_of(steps_, [&](const Step& step) { return std::visit(keeps, step); });
}

void PreTokenizer::split(TextPieces& pieces) const {
  for (const Step& step : steps_) {
    pieces.next.clear();
    for (const TextPiece& piece : pieces.list)
      if (piece.token >= 0)
        pieces.next.push_back(piece);
      else
        std::visit(Splitter{pieces, piece}, step);
    pieces.list.swap(pieces.next);
  }
}

}  // namespace mpt
