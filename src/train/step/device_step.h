// The device work of a training step: the same calls on the same memory every step, captured as a
// graph if the device supports it.
//
// Inputs are written beforehand by Llama::stage() and Optimizer::prepare(); the results, loss() and
// Optimizer::control(), are valid after Device::synchronize().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "config/batch_plan.h"
#include "core/tensor.h"
#include "device/device.h"
#include "ranks/communicator.h"
#include "train/step/training_model.h"
#include "train/stop_signal.h"

namespace mpt {

class DeviceStep {
 public:
  // `model` and `device` must outlive this object.
  DeviceStep(TrainingModel& model, const BatchPlan& batch, Device& device);
  ~DeviceStep();
  DeviceStep(const DeviceStep&) = delete;
  DeviceStep& operator=(const DeviceStep&) = delete;

  // Enqueues the whole step.
  void enqueue() {
    capture_->run([this] {
      gradients();
      update();
    });
    model_.data_parallel.end_step();
  }
  // Returns whether the last enqueue() replayed a captured graph.
  [[nodiscard]] bool replayed() const { return capture_->replayed(); }

  // The two halves of a step, never captured: gradients (complete, rounded, with their norm) and
  // update.
  void enqueue_gradients() { gradients(); }
  void enqueue_update() {
    update();
    model_.data_parallel.end_step();
  }
  // Completes a step whose update was made by other means.
  void finish_update() {
    model_.data_parallel.end_update();
    model_.data_parallel.end_step();
  }

  // Returns whether a signal can abandon a step before its update: only on the CPU, where enqueuing
  // work runs it.
  [[nodiscard]] bool can_be_left() const { return stop_points_ != nullptr; }
  struct Attempt {
    double seconds_of_last;  // the same on all ranks; 0 if there was no step
    std::function<void(int64_t micro_batch, int64_t of)> begins{};
  };
  // Like enqueue_gradients(), but a signal can abandon it; requires can_be_left(). Returns false if
  // it was abandoned, on all ranks at the same point; everything a checkpoint holds is then as
  // before the step.
  [[nodiscard]] bool try_gradients(const Attempt& attempt);

  // Returns the sum of all losses of the step.
  [[nodiscard]] double loss() const { return model_.data_parallel.loss(); }

 private:
  // Copies, saved before the step, of checkpointed tensors that forward and backward change.
  struct Kept {
    Tensor tensor;
    std::vector<std::byte> bytes;
  };

  void gradients(const std::function<void(int64_t, int64_t)>& begins = {});
  void update();
  void keep();
  void put_back();

  TrainingModel& model_;
  BatchPlan batch_;
  Device& device_;
  std::unique_ptr<GraphCapture> capture_;
  std::unique_ptr<StopPoints> stop_points_;  // null if steps cannot be abandoned
  std::vector<Kept> kept_;
};

}  // namespace mpt
