#include "data/sequence_source.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <map>
#include <ranges>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "core/io/file_patterns.h"
#include "core/progress.h"
#include "core/random.h"
#include "data/manifest.h"
#include "data/shuffle.h"

namespace mpt {
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

// Returns the hash listed in the manifest.
std::string check_shard(const Manifest& manifest, const std::string& manifest_path,
                        const std::string& shard) {
  const ManifestShard* listed = manifest.find_shard(fs::path(shard).filename().string());
  if (listed == nullptr) throw error("{}: not among the shards listed in {}", shard, manifest_path);
  const int64_t tokens = TokenShard(shard).tokens();
  if (tokens != listed->tokens)
    throw error("{}: has {} tokens, but {} lists {}", shard, tokens, manifest_path, listed->tokens);
  return listed->hash;
}

// Checks as many of a shard's tokens as `left` allows and deducts them from it.
void scan(const std::string& shard, int64_t vocab_size, int64_t& left) {
  if (left <= 0) return;
  const TokenShard opened(shard);
  opened.check_tokens_below(vocab_size, left);
  left -= std::min(left, opened.tokens());
}

// Returns the shards' hashes, where they have manifests.
std::vector<std::string> check_shards(const std::vector<std::string>& shards,
                                      const SequenceOptions& options) {
  std::vector<std::string> hashes;
  std::map<std::string, std::optional<Manifest>> manifests;  // by path
  int64_t to_scan = options.scanned_tokens, done = 0;
  Progress progress({.label = "check shards", .total = std::ssize(shards)});
  for (const std::string& shard : shards) {
    const std::string path = (fs::path(shard).parent_path() / kManifestName).string();
    const auto [entry, first] = manifests.try_emplace(path);
    if (first) {
      entry->second = manifest_beside(shard);
      if (entry->second) check_tokenizer(*entry->second, path, options);
      if (!entry->second && options.tokenizer_hash)
        spdlog::warn("{}: no manifest next to it, so its tokenizer cannot be checked", shard);
    }
    hashes.push_back(entry->second ? check_shard(*entry->second, path, shard) : "");
    if (!entry->second) scan(shard, options.vocab_size, to_scan);
    progress.update(++done);
  }
  progress.clear();
  return hashes;
}

SequenceOptions checked(const SequenceOptions& options) {
  if (options.seq_len < 1) throw error("seq_len is {}; expected at least 1", options.seq_len);
  if (options.vocab_size < 1 || options.vocab_size > INT32_MAX)
    throw error("vocab_size is {}; expected 1 to {}", options.vocab_size, INT32_MAX);
  if (options.pad_token < 0 || options.pad_token >= options.vocab_size)
    throw error("pad_token is {}; expected 0 to {}", options.pad_token, options.vocab_size - 1);
  check(options.pack ||
            (options.packing == Packing::kStream && options.attention == AttentionScope::kRow),
        "packing {} and attention {} of rows of one document", name_of(options.packing),
        name_of(options.attention));
  return options;
}

// Names the option that needs document starts; empty if none does.
std::string_view reader_of_documents(const SequenceOptions& options) {
  if (!options.pack) return "one document per row (pack: false)";
  if (options.packing == Packing::kBestFit) return "best-fit packing (packing: best_fit)";
  if (options.attention == AttentionScope::kDocument)
    return "attention within documents (attention: document)";
  return "";
}

std::string names_of(const SequenceOptions& options) {
  return fmt::format("{}", fmt::join(options.patterns, ", "));
}

void tell(const BestFitPlan& plan, const SequenceOptions& options) {
  const int64_t places = plan.rows() * (options.seq_len + 1);
  spdlog::info(
      "{}: best-fit packing: {} documents in {} rows of {} tokens, {} of them cut; {} places "
      "({:.2f} %) are padding",
      names_of(options), plan.documents(), plan.rows(), options.seq_len + 1, plan.cut_documents(),
      plan.padding(), 100.0 * double(plan.padding()) / double(places));
}

// For one document per row.
void tell_what_is_cut(const TokenStream& stream, const SequenceOptions& options) {
  int64_t left_out = stream.tokens();
  for (int64_t i = 0; i < stream.documents(); ++i) {
    const TokenRange document = stream.document(i);
    left_out -= std::min(document.end - document.begin, options.seq_len + 1);
  }
  spdlog::info(
      "{}: one document per row: {} rows of {} tokens leave out {} of {} tokens ({:.0f} %)",
      names_of(options), stream.documents(), options.seq_len + 1, left_out, stream.tokens(),
      100.0 * double(left_out) / double(stream.tokens()));
}

}  // namespace

SequenceSource::SequenceSource(const SequenceOptions& options)
    : SequenceSource(checked(options), expand_patterns(options.patterns)) {}

SequenceSource::SequenceSource(const SequenceOptions& options,
                               const std::vector<std::string>& shards)
    : options_(options), stream_(shards, options.vocab_size) {
  hashes_ = check_shards(shards, options_);
  const std::string_view reader = reader_of_documents(options_);
  if (!reader.empty()) stream_.open_documents(reader);
  if (options_.packing == Packing::kBestFit) {
    plan_ = BestFitPlan(stream_, options_.seq_len);
    tell(plan_, options_);
  }
  sequences_ = count_sequences();
  if (!options_.pack) tell_what_is_cut(stream_, options_);
}

std::vector<ShardContent> SequenceSource::contents() const {
  std::vector<ShardContent> contents;
  for (const TokenShard& shard : stream_.shards())
    contents.push_back({.file = fs::path(shard.path()).filename().string(),
                        .tokens = shard.tokens(),
                        .sample = shard.sample_hash(),
                        .hash = hashes_[contents.size()]});
  return contents;
}

int64_t SequenceSource::count_sequences() const {
  if (options_.packing == Packing::kBestFit) return plan_.rows();
  if (!options_.pack) {
    if (stream_.documents() == 0)
      throw error("{}: no document begins in these shards", names_of(options_));
    return stream_.documents();
  }
  const int64_t sequences = (tokens() - 1) / options_.seq_len;
  if (sequences == 0)
    throw error("{}: {} tokens are too few for one sequence; seq_len = {} needs at least {}",
                names_of(options_), tokens(), options_.seq_len, options_.seq_len + 1);
  return sequences;
}

// For rows that are a single range of the stream: 1 to seq_len + 1 tokens.
TokenRange SequenceSource::range_of(int64_t sequence) const {
  const int64_t length = options_.seq_len;
  if (options_.pack) return {sequence * length, sequence * length + length + 1};
  const TokenRange document = stream_.document(sequence);
  return {document.begin, std::min(document.end, document.begin + length + 1)};
}

// Calls f(range) for each range of the stream that makes up a row, from left to right; with
// attention within documents, one range per document.
template <class F>
void SequenceSource::for_each_part(int64_t global_sequence, const F& f) const {
  check(global_sequence >= 0, "global sequence {} is negative", global_sequence);
  const int64_t epoch = global_sequence / sequences_, index = global_sequence % sequences_;
  if (epoch >= kMostEpochs)
    throw error("sequence {} of data with {} is beyond {} epochs, the most that can be read",
                global_sequence, sequences_, kMostEpochs);
  const bool shuffled = options_.shuffle == Shuffle::kYes;
  const int64_t sequence =
      shuffled ? permuted_index({options_.seed, epoch}, sequences_, index) : index;
  if (options_.packing == Packing::kBestFit) {
    for (const uint32_t piece : plan_.pieces_of(sequence)) f(plan_.range_of(stream_, piece));
    return;
  }
  const TokenRange range = range_of(sequence);
  if (options_.attention == AttentionScope::kRow) return f(range);
  int64_t next = stream_.documents_until(range.begin);
  for (int64_t begin = range.begin; begin < range.end; ++next) {
    const int64_t end = std::min(stream_.document_begin(next), range.end);
    f(TokenRange{begin, end});
    begin = end;
  }
}

int64_t SequenceSource::valid_targets(int64_t global_sequence) const {
  int64_t tokens = 0, parts = 0;
  for_each_part(global_sequence, [&](const TokenRange& part) {
    tokens += part.end - part.begin;
    ++parts;
  });
  return tokens - (options_.attention == AttentionScope::kDocument ? parts : 1);
}

void SequenceSource::read(int64_t global_sequence, const RowBuffers& row) const {
  const std::span<int32_t> tokens = row.tokens, targets = row.targets,
                           document_begin = row.document_begin;
  const bool apart = options_.attention == AttentionScope::kDocument;
  check(std::ssize(tokens) == seq_len() && std::ssize(targets) == seq_len() &&
            std::ssize(document_begin) == (apart ? seq_len() : 0),
        "rows of {} tokens, {} targets and {} beginnings of documents; expected seq_len = {}, and "
        "beginnings only for attention within documents",
        tokens.size(), targets.size(), document_begin.size(), seq_len());
  std::fill(targets.begin(), targets.end(), kIgnoreTarget);
  std::vector<int32_t> ids;  // the part's tokens, read only once
  size_t at = 0;             // offset of the part in the row's T + 1 tokens
  for_each_part(global_sequence, [&](const TokenRange& part) {
    const auto length = static_cast<size_t>(part.end - part.begin);
    const size_t inputs = std::min(length, tokens.size() - at), untold = apart || at == 0 ? 1 : 0;
    ids.resize(length);
    stream_.read(part.begin, ids);
    const std::span<const int32_t> read(ids);
    std::ranges::copy(read.first(inputs), tokens.begin() + std::ptrdiff_t(at));
    std::ranges::copy(read.subspan(std::min(untold, length)),
                      targets.begin() + std::ptrdiff_t(at + untold - 1));
    if (apart) std::ranges::fill(document_begin.subspan(at, inputs), static_cast<int32_t>(at));
    at += length;
  });
  if (at >= tokens.size()) return;
  std::ranges::fill(tokens.subspan(at), options_.pad_token);
  if (apart) std::ranges::fill(document_begin.subspan(at), static_cast<int32_t>(at));
}

}  // namespace mpt
