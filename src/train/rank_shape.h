// One rank among those of a run, and what of a step is its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "data/dataloader.h"
#include "train/run_config.h"

namespace mpt {

struct RankShape {
  int64_t rank = 0;
  int64_t size = 1;

  [[nodiscard]] bool alone() const { return size == 1; }
  [[nodiscard]] bool leads() const { return rank == 0; }
  bool operator==(const RankShape&) const = default;
};

// The rows of a step that a rank works on.
inline RowSlice rows_of(const BatchConfig& batch, RankShape shape) {
  return slice_of(batch.rows_per_step(), shape.rank, shape.size);
}

// A step as ranks do it: each its rows, in micro-batches of at most so many, of which some ranks may have
// fewer.
struct RankStep {
  int64_t rows = 0;              // of the rank that has most
  int64_t micro_batch_rows = 0;  // of a full one
  int64_t micro_batches = 0;     // of the rank that has most; all take part in as many
};
inline RankStep rank_step(const BatchConfig& batch, int64_t ranks) {
  const int64_t rows = (batch.rows_per_step() + ranks - 1) / ranks;
  const int64_t most = batch.micro_batch_rows > 0 ? std::min(batch.micro_batch_rows, rows) : rows;
  return {rows, most, (rows + most - 1) / most};
}
// Those that a rank has rows of.
inline int64_t micro_batches_of(const BatchConfig& batch, RankShape shape) {
  const int64_t most = rank_step(batch, shape.size).micro_batch_rows;
  return (rows_of(batch, shape).rows + most - 1) / most;
}

}  // namespace mpt
