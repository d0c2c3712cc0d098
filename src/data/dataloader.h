// Batches of consecutive global sequences, or one rank's rows of them, prefetched by a thread.
//
// The cursor (the first sequence of the next batch) is the loader's entire state: seek(cursor()) on
// a fresh loader continues with the same tokens, even if the batch size or number of ranks has
// changed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "data/sequence_source.h"

namespace mpt {

struct Batch {
  int64_t rows = 0;
  int64_t seq_len = 0;
  std::vector<int32_t> tokens;   // [rows, seq_len]
  std::vector<int32_t> targets;  // [rows, seq_len]; kIgnoreTarget where there is none
  // [rows, seq_len]: start of each token's document within its row; empty unless attention is
  // restricted to documents.
  std::vector<int32_t> document_begin{};
  int64_t valid_targets =
      0;  // targets other than kIgnoreTarget; counts the whole batch, even in a slice
  int64_t first_sequence = 0;  // global number of row 0
  // Hash of tokens, targets and document starts. It is a sum over rows, so the hashes of a batch's
  // slices add up to the batch's hash.
  uint64_t hash = 0;
};

// A range of rows of every batch.
struct RowSlice {
  int64_t first = 0;
  int64_t rows = 0;
};
// Rows of rank `rank` out of `ranks`: split as evenly as possible, in rank order.
inline RowSlice slice_of(int64_t rows, int64_t rank, int64_t ranks) {
  const int64_t first = rows * rank / ranks;
  return {first, rows * (rank + 1) / ranks - first};
}

// Reads sequences [first_sequence, first_sequence + rows) like a DataLoader, but without a thread.
// Used for evaluation.
Batch read_batch(const RowSource& source, int64_t first_sequence, int64_t rows);

class DataLoader {
 public:
  struct Options {
    int64_t rows_per_batch = 1;
    int64_t prefetch_batches = 2;  // 0: no prefetch; peek() and next() read
    int64_t first_sequence = 0;
    std::optional<RowSlice> slice{};  // rows read from each batch; nullopt: all
  };
  DataLoader(std::shared_ptr<const RowSource> source, const Options& options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  // Waits for the batch that next() will return. Rethrows read errors and leaves the cursor before
  // that batch. Valid until the next call.
  const Batch& peek();
  // Throws like peek().
  Batch next();
  [[nodiscard]] int64_t cursor() const { return cursor_; }
  void seek(int64_t first_sequence);
  // Continues with a different row source.
  void seek(std::shared_ptr<const RowSource> source, int64_t first_sequence);

 private:
  void start();
  void stop();
  void prefetch(int64_t sequence);
  [[nodiscard]] Batch read(int64_t sequence) const;

  std::shared_ptr<const RowSource> source_;
  Options options_;
  int64_t cursor_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  std::exception_ptr failure_;  // for the batch after those in ready_; the thread has exited
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace mpt
