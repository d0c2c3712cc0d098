// Trains a SentencePiece BPE tokenizer on a bounded, seeded sample of a corpus.
//
// The model is like LLaMA's: BPE with byte fallback, no normalisation, white space kept, digits
// split, a space before the text; <unk> 0, <s> 1, </s> 2, no padding piece. The result depends only
// on the options and the text. SentencePiece learns BPE pieces on one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus/corpus.h"

namespace mpt {

// A uniform sample of lines within a byte budget, drawn in one pass over any amount of text.
//
// Line i of the stream has priority Philox(seed, i); the lines of smallest priority that fit the
// budget are kept. The sample is a pure function of seed, budget and text.

class LineSample {
 public:
  LineSample(uint64_t seed, int64_t budget_bytes) : seed_(seed), budget_(budget_bytes) {}

  void add(std::string_view line);
  // Returns the sample in text order. No lines may be added afterwards.
  std::vector<std::string> take();
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  struct Line {
    uint64_t priority;
    int64_t index;
    std::string text;
    bool operator<(const Line& other) const { return priority < other.priority; }
  };

  uint64_t seed_;
  int64_t budget_;
  int64_t bytes_ = 0;
  int64_t next_index_ = 0;
  std::vector<Line> heap_;  // largest priority first
};

struct TokenizerTrainingOptions {
  CorpusOptions corpus{};
  std::string output{};  // "<name>.model"; a missing extension and directories are added
  int64_t vocab_size = 32000;
  double character_coverage = 0.99995;  // of the sample's characters; others are encoded as bytes
  int64_t sample_bytes = 100'000'000;   // byte budget of the sample, drawn from the whole corpus
  uint64_t seed = 0;                    // of the draw
  bool overwrite = false;               // replace an existing file
};

struct TokenizerTrainingResult {
  std::string path;
  std::string hash;
  int64_t vocab_size = 0;
  int64_t text_bytes = 0;    // of the corpus
  int64_t sample_bytes = 0;  // used for training
  int64_t sample_lines = 0;
  double seconds = 0;
};

TokenizerTrainingResult train_tokenizer(const TokenizerTrainingOptions& options);

}  // namespace mpt
