#include "data/dataloader.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/io/hash.h"

namespace mpt {

Batch read_batch(const RowSource& source, int64_t first_sequence, int64_t rows) {
  const auto length = static_cast<size_t>(source.seq_len());
  const size_t positions = static_cast<size_t>(rows) * length;
  Batch batch{.rows = rows,
              .seq_len = source.seq_len(),
              .tokens = std::vector<int32_t>(positions),
              .targets = std::vector<int32_t>(positions),
              .valid_targets = 0,
              .first_sequence = first_sequence,
              .hash = 0};
  const bool apart = source.attention() == AttentionScope::kDocument;
  if (apart) batch.document_begin.resize(positions);
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    const std::span tokens = std::span(batch.tokens).subspan(row * length, length),
                    targets = std::span(batch.targets).subspan(row * length, length);
    const std::span<int32_t> document_begin =
        apart ? std::span(batch.document_begin).subspan(row * length, length)
              : std::span<int32_t>();
    source.read(first_sequence + static_cast<int64_t>(row), {tokens, targets, document_begin});
    batch.hash += hash_number(std::as_bytes(tokens)) + 3 * hash_number(std::as_bytes(targets));
    if (apart) batch.hash += 5 * hash_number(std::as_bytes(document_begin));
  }
  batch.valid_targets = std::ssize(batch.targets) -
                        std::count(batch.targets.begin(), batch.targets.end(), kIgnoreTarget);
  return batch;
}

DataLoader::DataLoader(std::shared_ptr<const RowSource> source, const Options& options)
    : source_(std::move(source)), options_(options), cursor_(options.first_sequence) {
  check(options.rows_per_batch >= 1, "rows_per_batch is {}; expected at least 1",
        options.rows_per_batch);
  check(options.prefetch_batches >= 0, "prefetch_batches is {}; expected at least 0",
        options.prefetch_batches);
  check(options.first_sequence >= 0, "first_sequence is {}; expected at least 0",
        options.first_sequence);
  if (options.slice)
    check(options.slice->first >= 0 && options.slice->rows >= 1 &&
              options.slice->first + options.slice->rows <= options.rows_per_batch,
          "rows [{}, +{}) are outside a batch of {} rows", options.slice->first,
          options.slice->rows, options.rows_per_batch);
  start();
}

DataLoader::~DataLoader() { stop(); }

Batch DataLoader::read(int64_t sequence) const {
  if (!options_.slice) return read_batch(*source_, sequence, options_.rows_per_batch);
  Batch batch = read_batch(*source_, sequence + options_.slice->first, options_.slice->rows);
  batch.valid_targets = 0;
  for (int64_t row = 0; row < options_.rows_per_batch; ++row)
    batch.valid_targets += source_->valid_targets(sequence + row);
  return batch;
}

void DataLoader::start() {
  if (options_.prefetch_batches > 0)
    thread_ = std::thread([this, from = cursor_] { prefetch(from); });
}

void DataLoader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DataLoader::prefetch(int64_t sequence) try {
  for (;; sequence += options_.rows_per_batch) {
    Batch batch = read(sequence);
    std::unique_lock lock(mutex_);
    changed_.wait(lock,
                  [&] { return stopping_ || std::ssize(ready_) < options_.prefetch_batches; });
    if (stopping_) return;
    ready_.push_back(std::move(batch));
    changed_.notify_all();
  }
} catch (...) {
  const std::lock_guard lock(mutex_);
  failure_ = std::current_exception();
  changed_.notify_all();
}

const Batch& DataLoader::peek() {
  if (options_.prefetch_batches == 0 && ready_.empty()) ready_.push_back(read(cursor_));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty() || failure_; });
  if (ready_.empty()) std::rethrow_exception(failure_);
  return ready_.front();
}

Batch DataLoader::next() {
  peek();
  const std::lock_guard lock(mutex_);
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  cursor_ += options_.rows_per_batch;
  return batch;
}

void DataLoader::seek(int64_t first_sequence) { seek(source_, first_sequence); }

void DataLoader::seek(std::shared_ptr<const RowSource> source, int64_t first_sequence) {
  check(first_sequence >= 0, "cannot seek to sequence {}", first_sequence);
  stop();
  ready_.clear();
  failure_ = nullptr;
  stopping_ = false;
  source_ = std::move(source);
  cursor_ = first_sequence;
  start();
}

}  // namespace mpt
