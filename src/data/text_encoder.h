// Encodes much text fast: id for id what Tokenizer::encode gives, word by word with a cache.
//
// Why it is exact: in a BPE model none of whose pieces has white space behind another character, no merge
// crosses the border in front of a word's white space, so words encode independently. Whether a model is of
// this kind (BPE, byte fallback, no normalisation, no user-defined pieces: LLaMA's and those that `mpretrain
// tokenizer` trains) is read from the model; text of any other model goes to SentencePiece whole.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"
#include "data/word_cache.h"

namespace mpt {

// Whether words can be encoded one by one; `model` is the content of a SentencePiece model file.
bool words_are_independent(std::string_view model);

// For one thread. Tokenizer and cache must outlive it; others may use them at the same time.
class TextEncoder {
 public:
  TextEncoder(const Tokenizer& tokenizer, WordCache& words);

  // Appends the ids of `text`, without BOS and EOS.
  void append(std::string_view text, std::vector<int32_t>& ids);
  [[nodiscard]] bool word_by_word() const { return word_by_word_; }

 private:
  void append_word(std::string_view word, std::vector<int32_t>& ids);
  void append_new_word(const HashedWord& word, std::vector<int32_t>& ids);

  const Tokenizer& tokenizer_;
  WordCache& words_;
  RecentWords recent_;
  bool word_by_word_;
};

}  // namespace mpt
