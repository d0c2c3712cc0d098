#include "train/training_step.h"

namespace mpt {

StepWork::StepWork(RunModel& model, const BatchPlan& batch, Device& device)
    : model_(model), batch_(batch), device_(device), repeated_(device.make_repeated_work()) {
  if (device.backend() != Backend::kCpu) return;
  stop_points_ = std::make_unique<StopPoints>(model.data_parallel.ranks(), model.data_parallel);
  model_.llama.set_hooks(*stop_points_);
  for (const NamedTensor& state : model_.llama.named_states())
    kept_.push_back({state.tensor,
                     std::vector<std::byte>(size_t(state.tensor.elements() * size_of(state.tensor.dtype)))});
}

StepWork::~StepWork() { model_.llama.set_hooks(model_.data_parallel); }

void StepWork::gradients(const std::function<void(int64_t, int64_t)>& begins) {
  DataParallel& ranks = model_.data_parallel;
  const int64_t all = batch_.most_micro_batches;
  ranks.begin_step();
  for (int64_t i = 0; i < all; ++i) {
    if (begins) begins(i, all);
    if (i == all - 1) ranks.begin_last_micro_batch();
    if (i < batch_.own_micro_batches)
      model_.llama.forward_backward(i, i > 0 ? Accumulate::kYes : Accumulate::kNo);
    else
      model_.llama.skip_micro_batch();
  }
  ranks.finish_gradients();
  model_.llama.end_step();
  model_.optimizer.measure(ranks.gather_losses());
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
  model_.data_parallel.end_step();
}

void StepWork::update() {
  model_.optimizer.update();
  model_.data_parallel.end_update();
}

}  // namespace mpt
