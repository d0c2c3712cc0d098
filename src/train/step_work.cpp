#include "train/step_work.h"

namespace mpt {

MicroBatches micro_batches(const BatchConfig& batch, RankShape shape) {
  return {rank_step(batch, shape.size).micro_batches, micro_batches_of(batch, shape)};
}

void StepWork::gradients() {
  DataParallel* const ranks = model_.data_parallel.get();
  if (ranks) ranks->begin_step();
  for (int64_t i = 0; i < micro_batches_.all; ++i) {
    if (ranks && i == micro_batches_.all - 1) ranks->begin_last_micro_batch();
    if (i < micro_batches_.own)
      model_.llama.forward_backward(i, i > 0 ? Accumulate::kYes : Accumulate::kNo);
    else
      model_.llama.skip_micro_batch();
  }
  ranks ? ranks->finish_gradients() : model_.llama.round_gradients();
  model_.llama.end_step();
  model_.optimizer.measure(ranks ? ranks->gather_losses() : model_.llama.losses());
}

void StepWork::update() {
  model_.optimizer.update();
  use_new_weights();
}

void StepWork::use_new_weights() {
  if (model_.data_parallel) return;  // the next step fetches what others have updated
  const Range range(device_, "new weights");
  model_.optimizer.settle();
  model_.weights_changed();
}

void StepWork::end() {
  if (model_.data_parallel) model_.data_parallel->updated();
}

double StepWork::loss() const {
  return model_.data_parallel ? model_.data_parallel->loss() : model_.llama.loss();
}

}  // namespace mpt
