// Trains a SentencePiece BPE tokenizer on a bounded, seeded sample of a corpus.
//
// The model is of LLaMA's kind: BPE with byte fallback, text taken as it is (no normalisation, white space
// kept), digits split, a space in front of the text; <unk> 0, <s> 1, </s> 2, no padding piece. The result
// depends on the options and the text only. SentencePiece learns BPE pieces in one thread.
#pragma once

#include <cstdint>
#include <string>

#include "data/corpus.h"

namespace mpt {

struct TokenizerTrainingOptions {
  CorpusOptions corpus{};
  std::string output{};  // "<name>.model"; the ending and directories are added where they are missing
  int64_t vocab_size = 32000;
  double character_coverage = 0.99995;  // of the sample's characters; the others are spelled in bytes
  int64_t sample_bytes = 100'000'000;   // lines are drawn from the whole corpus until this much text is held
  uint64_t seed = 0;                    // of the draw
  bool overwrite = false;               // replace a file that is there
};

struct TokenizerTrainingResult {
  std::string path;
  std::string hash;
  int64_t vocab_size = 0;
  int64_t text_bytes = 0;    // of the corpus
  int64_t sample_bytes = 0;  // of it used
  int64_t sample_lines = 0;
  double seconds = 0;
};

TokenizerTrainingResult train_tokenizer(const TokenizerTrainingOptions& options);

}  // namespace mpt
