// Training rows as a pure function of their global sequence number: number -> tokens and targets.
//
//   packed (default)  sequence i of an epoch is tokens [i T, i T + T] of the stream of all shards:
//                     T inputs and, shifted by one, T targets; n = (tokens - 1) / T sequences;
//                     documents may span sequences
//   packed, best fit  whole documents, at most T + 1 tokens in a row (data/best_fit.h), then
//                     padding, whose targets are kIgnoreTarget; n = rows of the plan
//   one document      the first T + 1 tokens of a document; a shorter one is padded on the right,
//   per row           and the targets of padding, and of the document's last token, are
//                     kIgnoreTarget; n = documents
//
// If attention stays within documents, the last token of a document does not predict the first of
// the next: its target is kIgnoreTarget.
//
// Global sequence s is sequence s % n of epoch s / n, in the order of permuted_index (shuffled) or
// of the stream. Nothing else matters: not the batch size, ranks or threads.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/attention_scope.h"
#include "core/enum_names.h"
#include "core/random.h"
#include "core/tensor.h"
#include "data/best_fit.h"
#include "data/packing.h"
#include "data/shuffle.h"
#include "data/token_stream.h"

namespace mpt {

struct SequenceOptions {
  std::vector<std::string> patterns{};  // shards: files and globs
  int64_t seq_len = 0;                  // T
  bool pack = true;
  Packing packing = Packing::kStream;               // for packed rows
  AttentionScope attention = AttentionScope::kRow;  // kDocument: packed rows only
  Shuffle shuffle = Shuffle::kYes;
  uint64_t seed = 0;
  int64_t vocab_size = 0;                       // the model's; every token must be below it
  std::optional<std::string> tokenizer_hash{};  // if set, a manifest must name the same one
  // Number of leading tokens, over all shards without a manifest, that are checked against
  // vocab_size before any is used; nothing else vouches for such shards.
  int64_t scanned_tokens = 0;
  int32_t pad_token = 0;  // input after the end of a document; no target sees it
};

// Destination of a row: seq_len elements each.
struct RowBuffers {
  std::span<int32_t> tokens, targets;
  // core/attention_scope.h; padding counts as a document. Empty unless attention is restricted to
  // documents.
  std::span<int32_t> document_begin{};
};

// Rows by number. All members are thread-safe.
class RowSource {
 public:
  virtual ~RowSource() = default;
  [[nodiscard]] virtual int64_t seq_len() const = 0;
  [[nodiscard]] virtual AttentionScope attention() const = 0;
  // Number of targets other than kIgnoreTarget; does not read the row.
  [[nodiscard]] virtual int64_t valid_targets(int64_t global_row) const = 0;
  virtual void read(int64_t global_row, const RowBuffers& row) const = 0;
};

// Identifies a shard by its tokens, whatever its name.
struct ShardContent {
  std::string file;  // base name; says nothing about the content
  int64_t tokens = 0;
  std::string sample;  // TokenShard::sample_hash
  std::string hash;    // over all tokens, from the manifest; "" without one

  // Compares full hashes only if both are known.
  [[nodiscard]] bool same_as(const ShardContent& other) const {
    return tokens == other.tokens && sample == other.sample &&
           (hash.empty() || other.hash.empty() || hash == other.hash);
  }
};

class SequenceSource final : public RowSource {
 public:
  // Opens all shards and checks them against the manifest next to them; without one, checks their
  // leading tokens.
  explicit SequenceSource(const SequenceOptions& options);

  [[nodiscard]] int64_t seq_len() const override { return options_.seq_len; }
  [[nodiscard]] AttentionScope attention() const override { return options_.attention; }
  // Sequences per epoch; at least 1.
  [[nodiscard]] int64_t sequences() const { return sequences_; }
  // Tokens in all shards.
  [[nodiscard]] int64_t tokens() const { return stream_.tokens(); }
  // One entry per shard in stream order. Reads their samples.
  [[nodiscard]] std::vector<ShardContent> contents() const;
  [[nodiscard]] int64_t valid_targets(int64_t global_sequence) const override;
  void read(int64_t global_sequence, const RowBuffers& row) const override;

 private:
  SequenceSource(const SequenceOptions& options, const std::vector<std::string>& shards);
  [[nodiscard]] int64_t count_sequences() const;
  [[nodiscard]] TokenRange range_of(int64_t sequence) const;
  template <class F>
  void for_each_part(int64_t global_sequence, const F& f) const;

  SequenceOptions options_;
  TokenStream stream_;
  std::vector<std::string> hashes_;  // per shard, from its manifest; "" without one
  BestFitPlan plan_;                 // for best-fit packing
  int64_t sequences_ = 0;
};

}  // namespace mpt
