// How ranks share a step: each has its own rows, cut into micro-batches; some ranks may have fewer
// micro-batches. With batch.micro_batch_rows=0, a rank's rows form one micro-batch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "config/run_config.h"
#include "data/dataloader.h"

namespace mpt {

struct BatchPlan {
  RowSlice own{};                  // this rank's rows of the step
  int64_t own_micro_batches = 0;   // non-empty micro-batches of this rank
  int64_t micro_batch_rows = 0;    // rows of a full micro-batch
  int64_t most_rows = 0;           // rows of the rank with the most
  int64_t most_micro_batches = 0;  // micro-batches of that rank; every rank takes part in as many
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
