// The segmentation of a word whose pieces have the greatest sum of scores, as the tokenizers
// library finds it: sums in FP64 from the left, of equal sums the one that is met first.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/subword/byte_trie.h"
#include "data/subword/subword_model.h"
#include "data/subword/vocabulary.h"

namespace mpt {

struct UnigramOptions {
  int32_t unknown = -1;  // -1: none, an error where it is needed
  bool byte_fallback = false;
};

class Unigram : public SubwordModel {
 public:
  // `scores`: of each id.
  Unigram(const Vocabulary& vocabulary, std::vector<double> scores, const UnigramOptions& options);

  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  // The best segmentation of what is before a place: its last piece, and where that begins.
  struct Best {
    double score = 0;
    int64_t begin = -1;  // -1: none yet
    int32_t id = 0;
  };
  void extend(std::vector<Best>& best, std::string_view word, size_t begin) const;
  void append_piece(std::string_view text, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary_;
  std::vector<double> scores_;
  UnigramOptions options_;
  double unknown_score_;
  ByteTrie pieces_;
};

}  // namespace mpt
