// Batches of consecutive global sequences, or one rank's rows of them, read ahead by a thread.
//
// The cursor, the first sequence of the coming batch, is the loader's whole state: seek(cursor()) on a fresh
// loader continues with the same tokens, whatever the batch size and the number of ranks were before.
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
  std::vector<int32_t> targets;  // [rows, seq_len], kIgnoreTarget where there is none
  int64_t valid_targets = 0;     // the others; of a slice, those of the whole batch
  int64_t first_sequence = 0;    // global number of row 0
  // Of tokens and targets: a sum over rows, so that slices of a batch add up to the whole.
  uint64_t hash = 0;
};

// Some of the rows of every batch.
struct RowSlice {
  int64_t first = 0;
  int64_t rows = 0;
};
// What rank `rank` of `ranks` has of `rows`: as even as can be, in the order of ranks.
inline RowSlice slice_of(int64_t rows, int64_t rank, int64_t ranks) {
  const int64_t first = rows * rank / ranks;
  return {first, rows * (rank + 1) / ranks - first};
}

// Sequences [first_sequence, first_sequence + rows): what a DataLoader gives, without a thread. For
// evaluation.
Batch read_batch(const SequenceSource& source, int64_t first_sequence, int64_t rows);

class DataLoader {
 public:
  struct Options {
    int64_t rows_per_batch = 1;
    int64_t prefetch_batches = 2;  // read ahead; 0: none, next() reads
    int64_t first_sequence = 0;
    std::optional<RowSlice> slice{};  // what of each batch is read; none: all
  };
  DataLoader(std::shared_ptr<const SequenceSource> source, const Options& options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  // Throws what reading the batch threw; the cursor then stays in front of it.
  Batch next();
  [[nodiscard]] int64_t cursor() const { return cursor_; }
  void seek(int64_t first_sequence);

 private:
  void start();
  void stop();
  void prefetch(int64_t sequence);
  [[nodiscard]] Batch read(int64_t sequence) const;

  std::shared_ptr<const SequenceSource> source_;
  Options options_;
  int64_t cursor_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  std::exception_ptr failure_;  // of the batch behind those in ready_; the thread has ended
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace mpt
