// Segments a word into the pieces with the greatest sum of scores, with the results of the
// tokenizers library: FP64 sums from the left; ties go to the one found first.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/subword/byte_trie.h"
#include "text/subword/subword_model.h"
#include "text/subword/vocabulary.h"

namespace mpt {

struct UnigramOptions {
  int32_t unknown = -1;  // -1: none; an error if needed
  bool byte_fallback = false;
};

class Unigram : public SubwordModel {
 public:
  // `scores`: one per id.
  Unigram(const Vocabulary& vocabulary, std::vector<double> scores, const UnigramOptions& options);

  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  // Best segmentation of the text before a position: its last piece, and where that begins.
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
