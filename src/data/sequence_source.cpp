#include "data/sequence_source.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <map>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "core/io/file_system.h"
#include "core/random.h"
#include "data/manifest.h"

namespace mpt {
namespace {

constexpr uint32_t kRounds = 8;

struct Feistel {
  ShuffleKey key;
  int half_bits;  // bits of each half, 1 to 32

  [[nodiscard]] uint64_t operator()(uint64_t value) const {
    const uint64_t mask = (uint64_t{1} << half_bits) - 1;
    uint64_t left = value >> half_bits, right = value & mask;
    for (uint32_t round = 0; round < kRounds; ++round) {
      const RandomCounter draw{.seed = key.seed,
                               .tensor = 0,
                               .row = static_cast<uint32_t>(right),
                               .step = static_cast<uint32_t>(key.epoch),
                               .stream = kDataOrderStream};
      const uint64_t next = left ^ (draw.word(round) & mask);
      left = right;
      right = next;
    }
    return left << half_bits | right;
  }
};

}  // namespace

int64_t permuted_index(ShuffleKey key, int64_t n, int64_t i) {
  check(i >= 0 && i < n, "index {} is outside a permutation of {}", i, n);
  check(key.epoch >= 0 && key.epoch < int64_t{1} << 32, "epoch {} is out of range", key.epoch);
  if (n == 1) return 0;
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1)));
  const Feistel permute{key, (bits + 1) / 2};
  auto value = static_cast<uint64_t>(i);
  do {
    value = permute(value);
  } while (value >= static_cast<uint64_t>(n));
  return static_cast<int64_t>(value);
}

namespace {

namespace fs = std::filesystem;

void check_tokenizer(const Manifest& manifest, const std::string& path,
                     const SequenceOptions& options) {
  if (manifest.tokenizer.vocab_size > options.vocab_size)
    throw error("{}: its tokenizer has {} pieces, more than the model's vocab_size of {}", path,
                manifest.tokenizer.vocab_size, options.vocab_size);
  if (options.tokenizer_hash && *options.tokenizer_hash != manifest.tokenizer.hash)
    throw error(
        "{}: made with the tokenizer of hash {}, expected {}; tokenize the text with the run's "
        "tokenizer",
        path, manifest.tokenizer.hash, *options.tokenizer_hash);
}

void check_shard(const Manifest& manifest, const std::string& manifest_path,
                 const std::string& shard) {
  const ManifestShard* listed = manifest.find_shard(fs::path(shard).filename().string());
  if (listed == nullptr) throw error("{}: not among the shards listed in {}", shard, manifest_path);
  const int64_t tokens = TokenShard(shard).tokens();
  if (tokens != listed->tokens)
    throw error("{}: has {} tokens, but {} lists {}", shard, tokens, manifest_path, listed->tokens);
}

void check_manifests(const std::vector<std::string>& shards, const SequenceOptions& options) {
  std::map<std::string, std::optional<Manifest>> manifests;  // by path
  for (const std::string& shard : shards) {
    const std::string path = (fs::path(shard).parent_path() / kManifestName).string();
    const auto [entry, first] = manifests.try_emplace(path);
    if (first) {
      entry->second = manifest_beside(shard);
      if (entry->second) check_tokenizer(*entry->second, path, options);
      if (!entry->second && options.tokenizer_hash)
        spdlog::warn("{}: no manifest beside it, so its tokenizer cannot be checked", shard);
    }
    if (entry->second) check_shard(*entry->second, path, shard);
  }
}

SequenceOptions checked(const SequenceOptions& options) {
  if (options.seq_len < 1) throw error("seq_len is {}; expected at least 1", options.seq_len);
  if (options.vocab_size < 1 || options.vocab_size > INT32_MAX)
    throw error("vocab_size is {}; expected 1 to {}", options.vocab_size, INT32_MAX);
  if (options.pad_token < 0 || options.pad_token >= options.vocab_size)
    throw error("pad_token is {}; expected 0 to {}", options.pad_token, options.vocab_size - 1);
  return options;
}

}  // namespace

SequenceSource::SequenceSource(const SequenceOptions& options)
    : SequenceSource(checked(options), expand_patterns(options.patterns)) {}

SequenceSource::SequenceSource(const SequenceOptions& options,
                               const std::vector<std::string>& shards)
    : options_(options), stream_(shards, options.vocab_size) {
  check_manifests(shards, options_);
  if (!options_.pack) stream_.open_documents();
  sequences_ = count_sequences();
}

int64_t SequenceSource::count_sequences() const {
  const std::string names = fmt::format("{}", fmt::join(options_.patterns, ", "));
  if (!options_.pack) {
    if (stream_.documents() == 0) throw error("{}: no document begins in these shards", names);
    return stream_.documents();
  }
  const int64_t sequences = (tokens() - 1) / options_.seq_len;
  if (sequences == 0)
    throw error("{}: {} tokens are too few for one sequence; seq_len = {} needs at least {}", names,
                tokens(), options_.seq_len, options_.seq_len + 1);
  return sequences;
}

// Between 1 and seq_len + 1 tokens.
TokenRange SequenceSource::range_of(int64_t sequence) const {
  const int64_t length = options_.seq_len;
  if (options_.pack) return {sequence * length, sequence * length + length + 1};
  const TokenRange document = stream_.document(sequence);
  return {document.begin, std::min(document.end, document.begin + length + 1)};
}

TokenRange SequenceSource::global_range(int64_t global_sequence) const {
  check(global_sequence >= 0, "global sequence {} is negative", global_sequence);
  const int64_t epoch = global_sequence / sequences_, index = global_sequence % sequences_;
  const bool shuffled = options_.shuffle == Shuffle::kYes;
  return range_of(shuffled ? permuted_index({options_.seed, epoch}, sequences_, index) : index);
}

int64_t SequenceSource::valid_targets(int64_t global_sequence) const {
  const TokenRange range = global_range(global_sequence);
  return range.end - range.begin - 1;
}

void SequenceSource::read(int64_t global_sequence, std::span<int32_t> tokens,
                          std::span<int32_t> targets) const {
  check(std::ssize(tokens) == seq_len() && std::ssize(targets) == seq_len(),
        "rows of {} tokens and {} targets; expected seq_len = {}", tokens.size(), targets.size(),
        seq_len());
  const TokenRange range = global_range(global_sequence);
  const auto length = static_cast<size_t>(range.end - range.begin);
  const size_t inputs = std::min(length, tokens.size());

  stream_.read(range.begin, tokens.first(inputs));
  std::fill(tokens.begin() + static_cast<ptrdiff_t>(inputs), tokens.end(), options_.pad_token);
  stream_.read(range.begin + 1, targets.first(length - 1));
  std::fill(targets.begin() + static_cast<ptrdiff_t>(length) - 1, targets.end(), kIgnoreTarget);
}

}  // namespace mpt
