#include "train/training_data.h"

#include "config/batch_plan.h"

namespace mpt {
namespace {

RowSlice checked_rows(const BatchConfig& batch, const Communicator& ranks) {
  require_rows(batch, ranks.size());
  return batch_plan(batch, ranks.rank(), ranks.size()).own;
}

}  // namespace

TrainingData::TrainingData(const RunConfig& config, const RunConfig& phase,
                           const Communicator& ranks)
    : training_(open_training_data(config)),
      validation_(open_validation_data(config)),
      shards_(contents_of(*training_)),
      validation_shards_(contents_of(validation_)),
      loader_(training_, {.rows_per_batch = phase.batch.rows_per_step(),
                          .prefetch_batches = config.data.prefetch_steps,
                          .first_sequence = 0,
                          .slice = checked_rows(phase.batch, ranks)}) {}

PresentData TrainingData::present() const { return {*training_, shards_, validation_shards_}; }

FormerData TrainingData::checked(const TrainState& saved, const std::string& checkpoint,
                                 const RunConfig& config) const {
  FormerData former = former_data(saved, checkpoint, config);
  check_corpora(former, checkpoint, present(), config);
  return former;
}

void TrainingData::continue_from(const FormerData& former, int64_t rows) {
  training_ = continued_data(former, rows, *training_);
  loader_.seek(training_, rows);
  former_ = former;
}

void TrainingData::add_to(TrainState& state) const {
  state.cursor = loader_.cursor();
  add_data(state, present(), former_);
}

}  // namespace mpt
