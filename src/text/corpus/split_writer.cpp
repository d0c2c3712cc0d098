#include "text/corpus/split_writer.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "data/document_index.h"

namespace mpt {
namespace {

constexpr size_t kNumberDigits = 6;  // in a shard's file name

// Index of an unfinished shard as of a save: a new file for every save, so that the previous one
// survives until the progress has been written.
std::string saved_index_of(const std::string& shard_path, int64_t tokens) {
  return fmt::format("{}.{}", index_path_of(shard_path), tokens);
}

}  // namespace

SplitWriter::SplitWriter(Options options, FileSystem& fs)
    : options_(std::move(options)), fs_(fs), counts_(static_cast<size_t>(options_.vocab_size)) {}

std::string SplitWriter::shard_name(int64_t number) const {
  return fmt::format("{}_{:0{}}.bin", options_.name, number, kNumberDigits);
}

std::string SplitWriter::path_of(const std::string& file) const {
  return in_directory(options_.directory, file);
}

void SplitWriter::begin_shard() {
  const std::string name = shard_name(static_cast<int64_t>(split_.shards.size()));
  split_.shards.push_back({.file = name, .tokens = 0, .hash = ""});
  shard_.emplace(path_of(name), token_width_for(options_.vocab_size), fs_);
  starts_.clear();
}

// Writes the index first, so that every existing shard has one.
void SplitWriter::end_shard() {
  ManifestShard& entry = split_.shards.back();
  entry.tokens = shard_->tokens();
  const std::string path = path_of(entry.file);
  write_document_index(index_path_of(path), starts_, entry.tokens, fs_);
  entry.hash = shard_->commit();
  shard_.reset();
}

void SplitWriter::add(std::span<const int32_t> document, int64_t text_bytes) {
  check(!document.empty(), "a document without tokens");
  bool begins = true;
  while (!document.empty()) {
    if (!shard_) begin_shard();
    if (std::exchange(begins, false)) starts_.push_back(static_cast<uint64_t>(shard_->tokens()));
    const int64_t room = options_.tokens_per_shard - shard_->tokens();
    const auto part =
        document.first(static_cast<size_t>(std::min<int64_t>(room, std::ssize(document))));
    shard_->append(part);
    for (const int32_t token : part) ++counts_[static_cast<size_t>(token)];
    split_.tokens += std::ssize(part);
    document = document.subspan(part.size());
    if (shard_->tokens() == options_.tokens_per_shard) end_shard();
  }
  ++split_.documents;
  split_.text_bytes += text_bytes;
}

SplitProgress SplitWriter::save() {
  SplitProgress progress{.split = split_, .counts = counts_};
  if (!shard_) return progress;
  progress.split.shards.pop_back();
  progress.open = shard_->save();
  const std::string index =
      saved_index_of(path_of(split_.shards.back().file), progress.open->tokens);
  write_document_index(index, starts_, progress.open->tokens, fs_);
  if (saved_indices_.empty() || saved_indices_.back() != index) saved_indices_.push_back(index);
  return progress;
}

void SplitWriter::forget_earlier() {
  const size_t kept = shard_ ? 1 : 0;
  while (saved_indices_.size() > kept) {
    fs_.remove_file(saved_indices_.front());
    saved_indices_.erase(saved_indices_.begin());
  }
}

void SplitWriter::go_on(SplitProgress progress) {
  split_ = std::move(progress.split);
  counts_ = std::move(progress.counts);
  if (std::ssize(counts_) != options_.vocab_size)
    throw error("{}: has counts of {} pieces; expected {}", options_.name, counts_.size(),
                options_.vocab_size);
  for (const ManifestShard& listed : split_.shards)
    if (const TokenShard shard(path_of(listed.file)); shard.tokens() != listed.tokens)
      throw error("{}: has {} tokens; expected {}", shard.path(), shard.tokens(), listed.tokens);
  if (!progress.open) return;
  const std::string name = shard_name(std::ssize(split_.shards));
  split_.shards.push_back({.file = name, .tokens = 0, .hash = ""});
  shard_.emplace(path_of(name), token_width_for(options_.vocab_size), *progress.open, fs_);
  saved_indices_.push_back(saved_index_of(path_of(name), progress.open->tokens));
  const DocumentIndex index(saved_indices_.back(), progress.open->tokens);
  for (int64_t i = 0; i < index.documents(); ++i)
    starts_.push_back(static_cast<uint64_t>(index.start(i)));
}

ManifestSplit SplitWriter::finish() {
  if (shard_) end_shard();
  split_.unigram_entropy_nats = entropy_nats(counts_);
  return split_;
}

double entropy_nats(std::span<const int64_t> counts) {
  double total = 0;
  for (const int64_t count : counts) total += static_cast<double>(count);
  double entropy = 0;
  for (const int64_t count : counts) {
    const double p = static_cast<double>(count) / total;
    if (count > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

bool is_split_file(const std::string& file, const std::string& split) {
  std::string_view rest = file;
  const auto take = [&rest](std::string_view begin) {
    const bool there = rest.starts_with(begin);
    if (there) rest.remove_prefix(begin.size());
    return there;
  };
  if (!take(split) || !take("_")) return false;
  const std::string_view number = rest.substr(0, kNumberDigits);
  if (number.size() != kNumberDigits ||
      number.find_first_not_of("0123456789") != std::string_view::npos)
    return false;
  rest.remove_prefix(kNumberDigits);
  if (!take(".bin") && !take(".idx")) return false;
  return rest.empty() || rest == ".tmp";
}

}  // namespace mpt
