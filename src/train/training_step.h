// The device's part of a training step: the same calls on the same memory at every step, recorded once where
// the device can.
//
// What differs from step to step is written before, by Llama::stage() and Optimizer::prepare(); what comes of
// it, loss() and Optimizer::control(), is there after Device::synchronize().
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "config/run_inputs.h"
#include "device/range.h"
#include "train/stop_signal.h"
#include "train/training_model.h"

namespace mpt {

class StepWork {
 public:
  // Model and device outlive this.
  StepWork(RunModel& model, const BatchPlan& batch, Device& device);
  ~StepWork();
  StepWork(const StepWork&) = delete;
  StepWork& operator=(const StepWork&) = delete;

  // All of it.
  void enqueue() {
    repeated_->run([this] {
      gradients();
      update();
    });
    model_.data_parallel.end_step();
  }
  // Whether the last enqueue() repeated a recording.
  [[nodiscard]] bool replayed() const { return repeated_->replayed(); }

  // Its halves, never recorded: complete and rounded gradients with their norm; the update.
  void enqueue_gradients() { gradients(); }
  void enqueue_update() {
    update();
    model_.data_parallel.end_step();
  }
  // What belongs behind an update that was made otherwise.
  void finish_update() {
    model_.data_parallel.end_update();
    model_.data_parallel.end_step();
  }

  // Whether a signal may end a step before its update: where work is done when it is enqueued, on the CPU.
  [[nodiscard]] bool can_be_left() const { return stop_points_ != nullptr; }
  struct Attempt {
    double seconds_of_last;  // the same on all ranks; 0: there was no step
    std::function<void(int64_t micro_batch, int64_t of)> begins{};
  };
  // enqueue_gradients() in a step that can be left. False if it was, on all ranks at the same point: all that
  // a checkpoint holds is as it was before the step.
  [[nodiscard]] bool try_gradients(const Attempt& attempt);

  // The sum of all losses of the step.
  [[nodiscard]] double loss() const { return model_.data_parallel.loss(); }

 private:
  // Tensors that forward and backward change and a checkpoint holds, as they were before the step.
  struct Kept {
    Tensor tensor;
    std::vector<std::byte> bytes;
  };

  void gradients(const std::function<void(int64_t, int64_t)>& begins = {});
  void update();
  void keep();
  void put_back();

  RunModel& model_;
  BatchPlan batch_;
  Device& device_;
  std::unique_ptr<RepeatedWork> repeated_;
  std::unique_ptr<StopPoints> stop_points_;  // null where a step cannot be left
  std::vector<Kept> kept_;
};

}  // namespace mpt
