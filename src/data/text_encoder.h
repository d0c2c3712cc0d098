// Encodes much text fast: id for id what Tokenizer::encode gives, word by word with a cache.
//
// Why it is exact: in a BPE model none of whose pieces has white space behind another character, no merge
// crosses the border in front of a word's white space, so words encode independently. Whether a model is of
// this kind (BPE, byte fallback, no normalisation, no user-defined pieces: LLaMA's and those that `mpretrain
// tokenizer` trains) is read from the model; text of any other model goes to SentencePiece whole.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer.h"

namespace mpt {

// Whether words can be encoded one by one; `model` is the content of a SentencePiece model file.
bool words_are_independent(std::string_view model);

// For one thread: the cache is not locked. The tokenizer must outlive it.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer& tokenizer, size_t max_cached_words = size_t{1} << 18);

  // Appends the ids of `text`, without BOS and EOS.
  void append(std::string_view text, std::vector<int32_t>& ids);
  [[nodiscard]] bool word_by_word() const { return word_by_word_; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view word) const { return std::hash<std::string_view>{}(word); }
  };
  void append_word(std::string_view word, std::vector<int32_t>& ids);

  const Tokenizer& tokenizer_;
  bool word_by_word_;
  size_t max_cached_words_;  // the cache starts anew when it has them
  std::unordered_map<std::string, std::vector<int32_t>, Hash, std::equal_to<>> cache_;
};

}  // namespace mpt
