#include "text/subword/unigram.h"

#include <algorithm>

#include "core/check.h"

namespace mpt {
namespace {

constexpr double kUnknownPenalty = 10;

[[noreturn]] void throw_no_unknown() {
  throw error("a character has no piece, and the model has no unk_id");
}

}  // namespace

Unigram::Unigram(const Vocabulary& vocabulary, std::vector<double> scores,
                 const UnigramOptions& options)
    : vocabulary_(vocabulary),
      scores_(std::move(scores)),
      options_(options),
      unknown_score_(*std::ranges::min_element(scores_) - kUnknownPenalty) {
  for (size_t id = 0; id < scores_.size(); ++id)
    pieces_.insert(*vocabulary.text_of(int64_t(id)), int32_t(id));
}

void Unigram::extend(std::vector<Best>& best, std::string_view word, size_t begin) const {
  const double before = best[begin].score;
  const size_t character = character_bytes(word[begin]);
  const auto offer = [&](size_t end, int32_t id, double score) {
    if (best[end].begin >= 0 && !(score > best[end].score)) return;
    best[end] = {score, int64_t(begin), id};
  };
  bool known = false;
  pieces_.prefixes(word.substr(begin), [&](size_t bytes, int32_t id) {
    offer(begin + bytes, id, scores_[size_t(id)] + before);
    known = known || bytes == character;
  });
  if (known) return;
  if (options_.unknown < 0) throw_no_unknown();
  offer(begin + character, options_.unknown, unknown_score_ + before);
}

void Unigram::append_piece(std::string_view text, std::vector<int32_t>& ids) const {
  if (const int32_t id = vocabulary_.id_of(text); id >= 0) return ids.push_back(id);
  const size_t begin = ids.size();
  bool spelled = options_.byte_fallback;
  for (size_t i = 0; i < text.size() && spelled; ++i) {
    ids.push_back(
        vocabulary_.id_of(fmt::format("<0x{:02X}>", static_cast<unsigned char>(text[i]))));
    spelled = ids.back() >= 0;
  }
  if (spelled) return;
  ids.resize(begin);
  if (options_.unknown < 0) throw_no_unknown();
  ids.push_back(options_.unknown);
}

void Unigram::encode(std::string_view word, std::vector<int32_t>& ids) const {
  std::vector<Best> best(word.size() + 1);
  for (size_t at = 0; at < word.size(); at += character_bytes(word[at])) extend(best, word, at);
  std::vector<std::string_view> pieces;  // in reverse; adjacent unknown pieces are joined
  bool unknown = false;
  for (size_t end = word.size(); end > 0;) {
    const auto begin = size_t(best[end].begin);
    const bool joins = best[end].id == options_.unknown;
    if (joins && unknown)
      pieces.back() = {word.data() + begin, pieces.back().size() + end - begin};
    else
      pieces.push_back(word.substr(begin, end - begin));
    unknown = joins;
    end = begin;
  }
  std::ranges::reverse(pieces);
  for (const std::string_view piece : pieces) append_piece(piece, ids);
}

}  // namespace mpt
