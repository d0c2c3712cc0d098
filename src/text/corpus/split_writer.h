// Writes one split of a corpus ("train" or "val") as a series of shards.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/io/file_system.h"
#include "data/manifest.h"
#include "data/token_shard.h"

namespace mpt {

// Progress of a SplitWriter: finished shards, and the saved state of the one after them.
struct SplitProgress {
  ManifestSplit split{};  // shards: the finished ones; the other counts include the open one
  std::vector<int64_t> counts{};  // per token id
  std::optional<TokenShardWriter::Saved> open{};
};

// Writes the documents of a split as shards, each with its document index.
class SplitWriter {
 public:
  struct Options {
    std::string directory;
    std::string name;  // "train": train_000000.bin, train_000000.idx, train_000001.bin …
    int64_t tokens_per_shard;
    int64_t vocab_size;
  };
  SplitWriter(Options options, FileSystem& fs);

  // Documents are concatenated without gaps and may span shards; each must have at least one token.
  void add(std::span<const int32_t> document, int64_t text_bytes);
  [[nodiscard]] int64_t documents() const { return split_.documents; }
  [[nodiscard]] int64_t tokens() const { return split_.tokens; }
  [[nodiscard]] int64_t finished_shards() const {
    return static_cast<int64_t>(split_.shards.size()) - (shard_ ? 1 : 0);
  }
  // Makes everything added durable. Keeps the files of the earlier save() until forget_earlier().
  SplitProgress save();
  void forget_earlier();
  // Resumes after a save(); call before add(). Throws Error if the saved files are missing.
  void go_on(SplitProgress progress);
  // Completes the last shard and returns the split's manifest entry.
  ManifestSplit finish();

 private:
  void begin_shard();
  void end_shard();
  [[nodiscard]] std::string shard_name(int64_t number) const;
  [[nodiscard]] std::string path_of(const std::string& file) const;

  Options options_;
  FileSystem& fs_;
  std::optional<TokenShardWriter> shard_;
  std::vector<uint64_t> starts_;  // where documents start in shard_
  std::vector<int64_t> counts_;   // per token id
  ManifestSplit split_;
  std::vector<std::string> saved_indices_;  // index files of open shards, newest last
};

// -sum p ln p over the frequencies; 0 if there are none.
double entropy_nats(std::span<const int64_t> counts);

// Whether a SplitWriter for the split could have written a file of this name: shard, index or
// temporary file.
bool is_split_file(const std::string& file, const std::string& split);

}  // namespace mpt
