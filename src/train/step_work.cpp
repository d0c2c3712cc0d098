#include "train/step_work.h"

namespace mpt {

void StepWork::enqueue_gradients() {
  for (int64_t i = 0; i < micro_batches_; ++i)
    model_.llama.forward_backward(i, i > 0 ? Accumulate::kYes : Accumulate::kNo);
  model_.llama.finish_gradients();
  model_.optimizer.measure(model_.llama.losses());
}

void StepWork::enqueue_update() {
  model_.optimizer.update();
  model_.optimizer.settle();
  model_.weights_changed();
}

}  // namespace mpt
