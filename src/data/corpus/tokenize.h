// Text to token shards: tokenises a corpus in parallel, splits off validation documents, writes a
// manifest.
//
// Writes train_000000.bin …, val_000000.bin … with their document indices, the tokenizer and,
// last, manifest.json to the output directory. The bytes depend on the text, the tokenizer and the
// options, not on the number of threads. Memory does not grow with the corpus. Shards stay in a
// hidden directory inside the output until all are complete: a run that fails or is killed leaves
// an earlier run's shards unchanged, and `overwrite` needs disk space for both. Shards without a
// manifest, left by a run killed at the very end, are never mixed with others unless `overwrite` is
// set.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/manifest.h"
#include "data/subword/added_tokens.h"
#include "data/token_shard.h"

namespace mpt {

// Writes the documents of one split as a series of shards, each with its document index.

class SplitWriter {
 public:
  struct Options {
    std::string directory;
    std::string name;  // "train": train_000000.bin, train_000000.idx, train_000001.bin …
    int64_t tokens_per_shard;
    int64_t vocab_size;
  };
  SplitWriter(Options options, FileSystem& fs);

  // Documents are concatenated without gaps and may span shards; a document must have at least one
  // token.
  void add(std::span<const int32_t> document, int64_t text_bytes);
  [[nodiscard]] int64_t documents() const { return split_.documents; }
  [[nodiscard]] int64_t tokens() const { return split_.tokens; }
  // Completes the last shard and returns the split's manifest entry.
  ManifestSplit finish();

 private:
  void begin_shard();
  void end_shard();
  [[nodiscard]] std::string shard_name(int64_t number) const;

  Options options_;
  FileSystem& fs_;
  std::optional<TokenShardWriter> shard_;
  std::vector<uint64_t> starts_;  // of documents that begin in shard_
  std::vector<int64_t> counts_;   // of each token id
  ManifestSplit split_;
};

// -sum p ln p over the frequencies; 0 if there are none.
double entropy_nats(std::span<const int64_t> counts);

// Whether a SplitWriter for the split could have written a file of this name: shard, index or
// temporary file.
bool is_split_file(const std::string& file, const std::string& split);

struct TokenizeOptions {
  CorpusOptions corpus{};
  std::string tokenizer{};  // path of its file
  std::string output{};     // directory, created if missing
  int64_t tokens_per_shard = 100'000'000;
  double validation_fraction = 0.0;  // of documents, each chosen by a hash of (seed, its number)
  uint64_t seed = 0;
  int threads = 0;           // encoding threads; 0: all
  bool prepend_bos = false;  // a document is [BOS] pieces [EOS]
  bool append_eos = true;
  SpecialTokens special_tokens = SpecialTokens::kMatch;  // those that a text spells
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

TokenizeResult tokenize_corpus(const TokenizeOptions& options,
                               FileSystem& fs = posix_file_system());

}  // namespace mpt
