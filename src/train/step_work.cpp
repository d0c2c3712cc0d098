#include "train/step_work.h"

namespace mpt {

MicroBatches micro_batches(const BatchConfig& batch, RankShape shape) {
  return {rank_step(batch, shape.size).micro_batches, micro_batches_of(batch, shape)};
}

StepWork::StepWork(RunModel& model, MicroBatches micro_batches, Device& device, Collectives* ranks)
    : model_(model), micro_batches_(micro_batches), device_(device), repeated_(device.make_repeated_work()) {
  if (device.backend() != Backend::kCpu) return;
  stop_points_ = std::make_unique<StopPoints>(ranks, model.data_parallel.get());
  model_.llama.join(stop_points_.get());
  for (const NamedTensor& state : model_.llama.named_states())
    kept_.push_back({state.tensor,
                     std::vector<std::byte>(size_t(state.tensor.elements() * size_of(state.tensor.dtype)))});
}

StepWork::~StepWork() {
  if (stop_points_) model_.llama.join(model_.data_parallel.get());
}

void StepWork::gradients(const std::function<void(int64_t, int64_t)>& begins) {
  DataParallel* const ranks = model_.data_parallel.get();
  if (ranks) ranks->begin_step();
  for (int64_t i = 0; i < micro_batches_.all; ++i) {
    if (begins) begins(i, micro_batches_.all);
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

bool StepWork::try_gradients(const Attempt& attempt) {
  keep();
  stop_points_->begin_step(attempt.seconds_of_last);
  try {
    gradients(attempt.begins);
  } catch (const StepLeft&) {
    stop_points_->end_step();
    put_back();
    return false;
  }
  stop_points_->end_step();
  return true;
}

void StepWork::keep() {
  for (Kept& kept : kept_) device_.download(kept.tensor, kept.bytes.data());
}

// What ranks do to these states when they take over the new weights is among what is undone, so they do it
// again before anything reads them.
void StepWork::put_back() {
  for (const Kept& kept : kept_) device_.upload(kept.bytes.data(), kept.tensor);
  end();
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
