// Writes the documents of one split as a row of shards, each with its document index.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/manifest.h"
#include "data/token_shard.h"

namespace mpt {

class SplitWriter {
 public:
  struct Options {
    std::string directory;
    std::string name;  // "train": train_000000.bin, train_000000.idx, train_000001.bin …
    int64_t tokens_per_shard;
    int64_t vocab_size;
  };
  SplitWriter(Options options, FileSystem& fs);

  // Documents follow each other without gaps and may run across shards; a document has at least one token.
  void add(std::span<const int32_t> document, int64_t text_bytes);
  [[nodiscard]] int64_t documents() const { return split_.documents; }
  [[nodiscard]] int64_t tokens() const { return split_.tokens; }
  // Completes the last shard and returns what was written.
  ManifestSplit finish();

 private:
  void begin_shard();
  void end_shard();
  [[nodiscard]] std::string shard_name(int64_t number) const;

  Options options_;
  FileSystem& fs_;
  std::optional<TokenShardWriter> shard_;
  std::vector<uint64_t> starts_;  // of the documents that begin in shard_
  std::vector<int64_t> counts_;   // of each token id
  ManifestSplit split_;
};

// -sum p ln p over the frequencies; 0 for none.
double entropy_nats(std::span<const int64_t> counts);

// Whether a file name is one that a SplitWriter makes for a split of this name: shard, index or temporary
// file.
bool is_split_file(const std::string& file, const std::string& split);

}  // namespace mpt
