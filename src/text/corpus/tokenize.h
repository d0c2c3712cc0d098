// Text to token shards: tokenises a corpus in parallel, splits off validation documents and writes
// a manifest.
//
// Writes train_000000.bin …, val_000000.bin … with their document indices, the tokenizer and, last,
// manifest.json to the output directory. The bytes depend on the text, the tokenizer and the
// options, not on the number of threads or on interruptions. Memory does not grow with the corpus.
//
// Shards stay in a hidden directory inside the output until all are complete: a run that fails or
// is killed leaves an earlier run's shards unchanged, and `overwrite` needs disk space for both.
// Progress is saved there after finished shards (unfinished_run.h), and the next run with the same
// inputs and options resumes from it. A run with different ones is refused, or starts over with
// `overwrite`. Shards without a manifest, left by a run killed at the very end, are never mixed
// with others unless `overwrite` is set.
#pragma once

#include <cstdint>
#include <string>

#include "core/io/file_system.h"
#include "data/manifest.h"
#include "text/corpus/corpus.h"
#include "text/subword/added_tokens.h"

namespace mpt {

struct TokenizeOptions {
  CorpusOptions corpus{};
  std::string tokenizer{};  // path of its file
  std::string output{};     // directory; created if missing
  int64_t tokens_per_shard = 100'000'000;
  double validation_fraction = 0.0;  // documents are chosen by a hash of (seed, number)
  uint64_t seed = 0;
  int threads = 0;           // encoding threads; 0: all
  bool prepend_bos = false;  // a document is [BOS] pieces [EOS]
  bool append_eos = true;
  SpecialTokens special_tokens = SpecialTokens::kMatch;  // special tokens spelled in the text
  bool overwrite = false;  // replace the shards and manifest of an earlier run
};

struct TokenizeResult {
  Manifest manifest;
  CorpusStats corpus;
  int64_t files = 0;        // files read
  bool plain_text = false;  // whether any is plain text
  int64_t continued = 0;    // documents already done by an interrupted run
  int64_t tokens = 0;       // over all splits
  double bytes_per_token = 0;
  double seconds = 0;
  double tokens_per_second = 0;
};

TokenizeResult tokenize_corpus(const TokenizeOptions& options,
                               FileSystem& fs = posix_file_system());

}  // namespace mpt
