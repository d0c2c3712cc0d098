// Fast bulk encoding: matches Tokenizer::encode id for id, but encodes word by word with a cache.
//
// tokenizer.json and tiktoken files define words themselves. For SentencePiece, the reason this is
// exact: in a BPE model without pieces that have white space after another character, no merge
// crosses the boundary before a word's leading white space, so words encode independently. Whether
// a model is of this kind (BPE, byte fallback, no normalisation, no user-defined pieces: LLaMA's
// and those trained by `mpretrain tokenizer`) is read from the model; for any other model, text is
// passed to SentencePiece whole.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "core/seeded_hash.h"
#include "text/corpus/word_cache.h"
#include "text/subword/subword_tokenizer.h"
#include "text/tokenizer.h"

namespace mpt {

// Whether words can be encoded one by one; `model` is the content of a SentencePiece model file.
bool words_are_independent(std::string_view model);

// Single-threaded. Tokenizer and cache must outlive it and may be shared between threads.
class TextEncoder {
 public:
  // `special`: see tokenizer.json in docs/formats.md; ignored for other files.
  TextEncoder(const Tokenizer& tokenizer, WordCache& words,
              SpecialTokens special = SpecialTokens::kMatch);

  // Appends the ids of `text`, without BOS and EOS.
  void append(std::string_view text, std::vector<int32_t>& ids);
  [[nodiscard]] bool word_by_word() const { return word_by_word_; }

 private:
  void append_subwords(std::string_view text, std::vector<int32_t>& ids);
  void append_word(std::string_view word, std::vector<int32_t>& ids);
  void append_new_word(const HashedWord& word, std::vector<int32_t>& ids);

  const Tokenizer& tokenizer_;
  WordCache& words_;
  SpecialTokens special_;
  RecentWords recent_;
  TextPieces pieces_;  // scratch, reused for every text
  bool word_by_word_;
};

}  // namespace mpt
