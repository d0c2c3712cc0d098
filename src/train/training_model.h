// A model with its optimizer as a run's config describes them, all memory taken from one allocator.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "config/run_config.h"
#include "config/run_inputs.h"
#include "device/device.h"
#include "model/llama.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel.h"
#include "train/stop_signal.h"

namespace mpt {

// Every parameter with its gradient, for an optimizer.
std::vector<UpdateTarget> update_targets(const WeightStore& weights);

struct TrainingModel {
  WeightStore weights;
  Llama llama;
  Partition partition;  // of what optimizers update, over the ranks; over one where each updates everything
  Optimizer optimizer;
  DataParallel data_parallel;

  // With a PlanningAllocator nothing is allocated and nothing may be run. `ranks` outlives this.
  TrainingModel(const RunConfig& config, Device& device, Allocator& allocator,
                Communicator& ranks = Communicator::single());

  // What a checkpoint holds as tensors: weights, optimizer states, scales of FP8 operands. To save: what this
  // rank gives of all that changes in updates only, and of the small rest; together the ranks give every
  // element once. To load: what this rank needs.
  [[nodiscard]] std::vector<TensorPart> parts_to_save() const;
  [[nodiscard]] std::vector<TensorPart> changing_parts() const;
  [[nodiscard]] std::vector<TensorPart> parts_to_load() const;
  // All of it, of a rank alone.
  [[nodiscard]] std::vector<NamedTensor> named_tensors() const;
  // What all ranks hold the same of: weights and scales.
  [[nodiscard]] std::vector<NamedTensor> replicated_tensors() const;
  // To be called when the weights are set: GEMMs read the new ones from then on.
  void weights_changed();
  // Makes weights that other ranks have updated, and what follows from them, new. To be called between a step
  // and what else reads them.
  void all_gather_weights() { data_parallel.all_gather_weights(); }
};

// Rows whose logits exist at one time: the configured number or the automatic one, at most a micro-batch.
int64_t loss_chunk_rows(const RunConfig& config, Backend backend, int64_t ranks = 1);

// Bytes by purpose that training with this config takes on the device, for this rank. Nobody is asked.
MemoryUse planned_memory(const RunConfig& config, Device& device,
                         const Communicator& ranks = Communicator::single());
// What this rank sends in a step, counting every part once for each rank that it goes to. Nobody is asked.
ExchangeVolume exchange_volume(const RunConfig& config, Device& device, const Communicator& ranks);

// The same, and of what it consists.
struct ExchangePlan {
  ExchangeVolume volume;
  int64_t own_elements = 0,
          most_elements = 0;  // of the parameters that this rank owns, and the one with most
  std::vector<BucketSummary> buckets{};
};
ExchangePlan exchange_plan(const RunConfig& config, Device& device, const Communicator& ranks);

// The device's part of a training step: the same calls on the same memory at every step, recorded once where
// the device can.
//
// What differs from step to step is written before, by Llama::stage() and Optimizer::prepare(); what comes of
// it, loss() and Optimizer::control(), is there after Device::synchronize().

class TrainingStep {
 public:
  // Model and device outlive this.
  TrainingStep(TrainingModel& model, const BatchPlan& batch, Device& device);
  ~TrainingStep();
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  // All of it.
  void enqueue() {
    capture_->run([this] {
      gradients();
      update();
    });
    model_.data_parallel.end_step();
  }
  // Whether the last enqueue() repeated a recording.
  [[nodiscard]] bool replayed() const { return capture_->replayed(); }

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

  TrainingModel& model_;
  BatchPlan batch_;
  Device& device_;
  std::unique_ptr<GraphCapture> capture_;
  std::unique_ptr<StopPoints> stop_points_;  // null where a step cannot be left
  std::vector<Kept> kept_;
};

}  // namespace mpt
