// Trains a SentencePiece BPE tokenizer on a bounded, seeded sample of a corpus.
//
// The model is like LLaMA's: BPE with byte fallback, no normalisation, white space kept, digits
// split, a space before the text; <unk> 0, <s> 1, </s> 2, no padding piece. The result depends only
// on the options and the text. SentencePiece learns BPE pieces on a single thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/corpus/corpus.h"

namespace mpt {

struct TokenizerTrainingOptions {
  CorpusOptions corpus{};
  std::string output{};  // "<name>.model"; adds a missing extension and creates directories
  int64_t vocab_size = 32000;
  double character_coverage = 0.99995;  // in the sample; the rest are encoded as bytes
  int64_t sample_bytes = 100'000'000;   // byte budget of the sample, drawn from the whole corpus
  uint64_t seed = 0;                    // for the draw
  bool overwrite = false;               // replace an existing file
};

struct TokenizerTrainingResult {
  std::string path;
  std::string hash;
  int64_t vocab_size = 0;
  int64_t text_bytes = 0;    // in the corpus
  int64_t sample_bytes = 0;  // used for training
  int64_t sample_lines = 0;
  double seconds = 0;
};

TokenizerTrainingResult train_tokenizer(const TokenizerTrainingOptions& options);

}  // namespace mpt
