#include "train/step/device_step.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "config/batch_plan.h"
#include "train/step/training_model.h"

namespace mpt {

DeviceStep::DeviceStep(TrainingModel& model, const BatchPlan& batch, Device& device)
    : model_(model), batch_(batch), device_(device), capture_(device.make_graph_capture()) {
  if (device.backend() != Backend::kCpu) return;
  stop_points_ = std::make_unique<StopPoints>(model.data_parallel.ranks(), model.data_parallel);
  model_.llama.set_hooks(*stop_points_);
  for (const NamedTensor& state : model_.llama.named_states())
    kept_.push_back({state.tensor, std::vector<std::byte>(size_t(state.tensor.elements() *
                                                                 size_of(state.tensor.dtype)))});
}

DeviceStep::~DeviceStep() { model_.llama.set_hooks(model_.data_parallel); }

void DeviceStep::gradients(const std::function<void(int64_t, int64_t)>& begins) {
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
  model_.optimizer.measure_gradients(ranks.gather_losses());
}

bool DeviceStep::try_gradients(const Attempt& attempt) {
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

void DeviceStep::keep() {
  for (Kept& kept : kept_) device_.download(kept.tensor, kept.bytes.data());
}

// This also undoes the effect of refreshed casts of new weights on these states, so end_step()
// marks the weights stale to have it redone.
void DeviceStep::put_back() {
  for (const Kept& kept : kept_) device_.upload(kept.bytes.data(), kept.tensor);
  model_.data_parallel.end_step();
}

void DeviceStep::update() {
  model_.optimizer.update();
  model_.data_parallel.end_update();
}

}  // namespace mpt
