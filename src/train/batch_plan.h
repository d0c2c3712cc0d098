// A step as ranks do it: each its rows, in micro-batches of at most so many, of which some ranks may have
// fewer.
#pragma once

#include <algorithm>
#include <cstdint>

#include "data/dataloader.h"
#include "train/run_config.h"

namespace mpt {

struct BatchPlan {
  RowSlice own{};                  // rows of the step that the rank works on
  int64_t own_micro_batches = 0;   // that it has rows of
  int64_t micro_batch_rows = 0;    // of a full one
  int64_t most_rows = 0;           // of the rank that has most
  int64_t most_micro_batches = 0;  // of that rank; all take part in as many
};

inline BatchPlan batch_plan(const BatchConfig& batch, int64_t rank, int64_t ranks) {
  const int64_t rows = batch.rows_per_step(), most = (rows + ranks - 1) / ranks;
  const int64_t full = batch.micro_batch_rows > 0 ? std::min(batch.micro_batch_rows, most) : most;
  const RowSlice own = slice_of(rows, rank, ranks);
  return {.own = own,
          .own_micro_batches = (own.rows + full - 1) / full,
          .micro_batch_rows = full,
          .most_rows = most,
          .most_micro_batches = (most + full - 1) / full};
}

}  // namespace mpt
