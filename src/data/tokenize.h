// Text in, token shards out: tokenises a corpus in parallel, splits off validation documents, writes a
// manifest.
//
// The output directory gets train_000000.bin …, val_000000.bin … with their document indices, tokenizer.model
// and, last of all, manifest.json. Its bytes depend on the text, the tokenizer and the options, not on the
// number of threads. Memory does not grow with the corpus. Shards lie in a hidden directory inside the output
// until all are complete: a run that fails or is killed leaves an earlier run's as they were, and `overwrite`
// needs the room for both. Shards without a manifest, as one killed at the very end leaves them, are mixed
// with no others unless `overwrite` is set.
#pragma once

#include <cstdint>
#include <string>

#include "data/corpus.h"
#include "data/manifest.h"

namespace mpt {

struct TokenizeOptions {
  CorpusOptions corpus{};
  std::string tokenizer{};  // path of the .model
  std::string output{};     // directory, made if need be
  int64_t tokens_per_shard = 100'000'000;
  double validation_fraction = 0.0;  // of the documents, each chosen by a hash of (seed, its number)
  uint64_t seed = 0;
  int threads = 0;           // that encode; 0: all
  bool prepend_bos = false;  // a document is [BOS] pieces [EOS]
  bool append_eos = true;
  bool overwrite = false;  // replace the shards and the manifest of an earlier run
};

struct TokenizeResult {
  Manifest manifest;
  CorpusStats corpus;
  int64_t tokens = 0;  // of all splits
  double bytes_per_token = 0;
  double seconds = 0;
  double tokens_per_second = 0;
};

TokenizeResult tokenize_corpus(const TokenizeOptions& options, FileSystem& fs = posix_file_system());

}  // namespace mpt
