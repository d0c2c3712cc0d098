// A model and its optimizer, built from a run's config with all memory from one allocator.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/run_config.h"
#include "config/run_inputs.h"
#include "device/device.h"
#include "model/llama.h"
#include "model/weight_ema.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel.h"
#include "train/stop_signal.h"

namespace mpt {

// Every parameter with its gradient, for an optimizer.
std::vector<UpdateTarget> update_targets(const WeightStore& weights);

struct TrainingModel {
  WeightStore weights;
  Llama llama;
  Partition partition;  // of updates over ranks; over one rank if each updates all
  Optimizer optimizer;
  DataParallel data_parallel;
  std::optional<WeightEma> ema;  // if the run keeps one

  // With a PlanningAllocator nothing is allocated and nothing may be run. All arguments but
  // `config` must outlive this object.
  TrainingModel(const RunConfig& config, Device& device, Allocator& allocator,
                Communicator& ranks = Communicator::single());

  // The tensors of a checkpoint: weights, optimizer states, FP8 scaling states. parts_to_save():
  // this rank's share of tensors that change only in updates; changing_parts(): of the small rest.
  // Together the ranks supply every element once. parts_to_load(): what this rank needs.
  [[nodiscard]] std::vector<TensorPart> parts_to_save() const;
  [[nodiscard]] std::vector<TensorPart> changing_parts() const;
  [[nodiscard]] std::vector<TensorPart> parts_to_load() const;
  // All tensors of a checkpoint, for a single rank.
  [[nodiscard]] std::vector<NamedTensor> named_tensors() const;
  // Tensors that are identical on all ranks: weights and FP8 scaling states.
  [[nodiscard]] std::vector<NamedTensor> replicated_tensors() const;
  // Call after the weights were set: refreshes what GEMMs read.
  void weights_changed();
  // Fetches weights that other ranks updated and refreshes what depends on them. Call after a step,
  // before anything but the next step reads weights.
  void all_gather_weights() { data_parallel.all_gather_weights(); }
  // Call after every step, of each in turn, if it was not abandoned: moves the EMA of weights,
  // which several ranks fetch for it, besides for the next step.
  void follow_weights(int64_t step);
};

// Rows whose logits exist at one time: the configured number or the automatic one, at most a
// micro-batch.
int64_t loss_chunk_rows(const RunConfig& config, Backend backend, int64_t ranks = 1);

// What Attention::in_use() says of the run's attention; empty on a backend with only one.
std::string attention_in_use(const RunConfig& config, Device& device, int64_t ranks = 1);

// Device memory by purpose that this rank needs to train. Does not communicate.
MemoryUse planned_memory(const RunConfig& config, Device& device,
                         const Communicator& ranks = Communicator::single());

// What this rank sends in a step. Does not communicate.
struct ExchangePlan {
  ExchangeVolume volume;  // bytes, counting every part once per receiving rank
  int64_t own_elements = 0,
          most_elements = 0;  // parameters this rank owns; the rank with most
  std::vector<BucketSummary> buckets{};
};
ExchangePlan exchange_plan(const RunConfig& config, Device& device, const Communicator& ranks);

// The device work of a training step: the same calls on the same memory every step, captured as a
// graph if the device supports it.
//
// Inputs are written beforehand by Llama::stage() and Optimizer::prepare(); the results, loss() and
// Optimizer::control(), are valid after Device::synchronize().

class TrainingStep {
 public:
  // `model` and `device` must outlive this object.
  TrainingStep(TrainingModel& model, const BatchPlan& batch, Device& device);
  ~TrainingStep();
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  // Enqueues the whole step.
  void enqueue() {
    capture_->run([this] {
      gradients();
      update();
    });
    model_.data_parallel.end_step();
  }
  // Whether the last enqueue() replayed a captured graph.
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

  // Whether a signal can abandon a step before its update: only on the CPU, where enqueuing work
  // runs it.
  [[nodiscard]] bool can_be_left() const { return stop_points_ != nullptr; }
  struct Attempt {
    double seconds_of_last;  // the same on all ranks; 0 if there was no step
    std::function<void(int64_t micro_batch, int64_t of)> begins{};
  };
  // enqueue_gradients() that a signal can abandon; requires can_be_left(). Returns false if it was
  // abandoned, on all ranks at the same point; everything a checkpoint holds is then as before the
  // step.
  [[nodiscard]] bool try_gradients(const Attempt& attempt);

  // The sum of all losses of the step.
  [[nodiscard]] double loss() const { return model_.data_parallel.loss(); }

 private:
  // Saved copies of checkpointed tensors that forward and backward change, from before the step.
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
