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
// Where attention stays within documents, the last token of a document does not predict the first
// of the next: its target is kIgnoreTarget.
//
// Global sequence s belongs to epoch s / n and is sequence s % n of it, in the order of
// permuted_index (shuffled) or of the stream. Nothing else matters: not the batch size, ranks or
// threads.
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
#include "data/token_stream.h"

namespace mpt {

// Shuffling: a seeded permutation of each epoch, evaluated one index at a time.
//
// Equation: a balanced Feistel network of 8 rounds on the smallest even number of bits that holds
// n, its round function a Philox word of (seed, epoch, half, round), walked along its cycle until
// the result is below n (Black and Rogaway, "Ciphers with arbitrary finite domains"). O(1) memory,
// at most about four evaluations on average, the same on every platform. The values are part of
// every checkpoint's meaning and never change (docs/numerics.md "Data order").

// Also used for other draws from a corpus: validation documents, the lines a tokenizer is trained
// on.
inline constexpr RandomStream kDataOrderStream{6};

struct ShuffleKey {
  uint64_t seed;
  int64_t epoch;  // 0 <= epoch < 2^32
};

// A bijection of [0, n) for every key; 0 <= i < n.
int64_t permuted_index(ShuffleKey key, int64_t n, int64_t i);

enum class Shuffle { kNo, kYes };
template <>
struct EnumNames<Shuffle> {
  static constexpr std::array<std::string_view, 2> kNames{"no", "yes"};
};

struct SequenceOptions {
  std::vector<std::string> patterns{};  // shards: files and globs
  int64_t seq_len = 0;                  // T
  bool pack = true;
  Packing packing = Packing::kStream;               // of packed rows
  AttentionScope attention = AttentionScope::kRow;  // kDocument: of packed rows only
  Shuffle shuffle = Shuffle::kYes;
  uint64_t seed = 0;
  int64_t vocab_size = 0;                       // the model's; every token must be below it
  std::optional<std::string> tokenizer_hash{};  // if given, a manifest must name the same
  // Tokens of shards without a manifest, which nobody vouches for, that are compared with
  // vocab_size before any is used: so many of all shards, from the first on.
  int64_t scanned_tokens = 0;
  int32_t pad_token = 0;  // input after the end of a document; no target sees it
};

// Where a row is written: seq_len elements each.
struct RowBuffers {
  std::span<int32_t> tokens, targets;
  // core/attention_scope.h; padding is a document. Empty where attention is not kept within
  // documents.
  std::span<int32_t> document_begin{};
};

// Rows by number. All members are thread-safe.
class RowSource {
 public:
  virtual ~RowSource() = default;
  [[nodiscard]] virtual int64_t seq_len() const = 0;
  [[nodiscard]] virtual AttentionScope attention() const = 0;
  // Number of targets other than kIgnoreTarget, without reading the row.
  [[nodiscard]] virtual int64_t valid_targets(int64_t global_row) const = 0;
  virtual void read(int64_t global_row, const RowBuffers& row) const = 0;
};

// What tells a shard from one with other tokens, whatever its name.
struct ShardContent {
  std::string file;  // name without its directory; says nothing of the content
  int64_t tokens = 0;
  std::string sample;  // TokenShard::sample_hash
  std::string hash;    // of all tokens, from its manifest; "" if it has none

  // As far as both are known.
  [[nodiscard]] bool same_as(const ShardContent& other) const {
    return tokens == other.tokens && sample == other.sample &&
           (hash.empty() || other.hash.empty() || hash == other.hash);
  }
};

class SequenceSource final : public RowSource {
 public:
  // Opens all shards and checks them against the manifest next to them, if it exists, or else the
  // first of their tokens.
  explicit SequenceSource(const SequenceOptions& options);

  [[nodiscard]] int64_t seq_len() const override { return options_.seq_len; }
  [[nodiscard]] AttentionScope attention() const override { return options_.attention; }
  // Sequences per epoch; at least 1.
  [[nodiscard]] int64_t sequences() const { return sequences_; }
  // Tokens in all shards.
  [[nodiscard]] int64_t tokens() const { return stream_.tokens(); }
  // Of all shards, in the order of the stream. Reads their samples.
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
  std::vector<std::string> hashes_;  // of the shards, from their manifests; "" without one
  BestFitPlan plan_;                 // of best-fit packing
  int64_t sequences_ = 0;
};

}  // namespace mpt
