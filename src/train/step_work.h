// The device's part of a training step: the same calls on the same memory at every step, recorded once where
// the device can.
//
// What differs from step to step is written before, by Llama::stage() and Optimizer::prepare(); what comes of
// it, Llama::loss() and Optimizer::control(), is there after Device::synchronize().
#pragma once

#include <memory>

#include "train/run_model.h"

namespace mpt {

class StepWork {
 public:
  // For steps of that many micro-batches. Both `model` and `device` outlive this.
  StepWork(RunModel& model, int64_t micro_batches, Device& device)
      : model_(model), micro_batches_(micro_batches), repeated_(device.make_repeated_work()) {}

  // All of it.
  void enqueue() {
    repeated_->run([this] {
      enqueue_gradients();
      enqueue_update();
    });
  }
  // Whether the last enqueue() repeated a recording.
  [[nodiscard]] bool replayed() const { return repeated_->replayed(); }

  // Its halves, never recorded: complete and rounded gradients with their norm; the update.
  void enqueue_gradients();
  void enqueue_update();

 private:
  RunModel& model_;
  int64_t micro_batches_;
  std::unique_ptr<RepeatedWork> repeated_;
};

}  // namespace mpt
