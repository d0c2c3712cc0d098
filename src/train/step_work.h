// The device's part of a training step: the same calls on the same memory at every step, recorded once where
// the device can.
//
// What differs from step to step is written before, by Llama::stage() and Optimizer::prepare(); what comes of
// it, loss() and Optimizer::control(), is there after Device::synchronize().
#pragma once

#include <memory>

#include "device/range.h"
#include "train/run_model.h"

namespace mpt {

// Micro-batches of a step: those that all ranks take part in, and those that this one has rows of.
struct MicroBatches {
  int64_t all, own;
};
MicroBatches micro_batches(const BatchConfig& batch, RankShape shape);

class StepWork {
 public:
  // Both `model` and `device` outlive this.
  StepWork(RunModel& model, MicroBatches micro_batches, Device& device)
      : model_(model),
        micro_batches_(micro_batches),
        device_(device),
        repeated_(device.make_repeated_work()) {}

  // All of it.
  void enqueue() {
    repeated_->run([this] {
      gradients();
      update();
    });
    end();
  }
  // Whether the last enqueue() repeated a recording.
  [[nodiscard]] bool replayed() const { return repeated_->replayed(); }

  // Its halves, never recorded: complete and rounded gradients with their norm; the update.
  void enqueue_gradients() { gradients(); }
  void enqueue_update() {
    update();
    end();
  }
  // What belongs behind an update that was made otherwise.
  void finish_update() {
    use_new_weights();
    end();
  }

  // The sum of all losses of the step.
  [[nodiscard]] double loss() const;

 private:
  void gradients();
  void update();
  void use_new_weights();
  void end();

  RunModel& model_;
  MicroBatches micro_batches_;
  Device& device_;
  std::unique_ptr<RepeatedWork> repeated_;
};

}  // namespace mpt
