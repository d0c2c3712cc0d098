// A model that takes whole training steps on random tokens: the work of train/trainer.h between two
// batches, without data, logs and checkpoints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/json/json_parse.h"
#include "device_probe.h"
#include "train/step/device_step.h"
#include "train/step/training_model.h"

namespace mpt {

// Changes to a config's step for measuring. 0 keeps the config's value.
struct StepShape {
  int64_t tokens_per_step = 0;
  int64_t seq_len = 0;
  int64_t micro_batch_rows = 0;
};
inline constexpr int64_t kAutomaticRows = -1;  // for micro_batch_rows: the most that fit

struct StepConfig {
  std::string path;
  std::vector<std::string> overrides;  // "key=value"
  StepShape shape;
  std::string device = "cpu";
  int64_t models = 1;  // models that share the device's memory
};
RunConfig resolved(const StepConfig& config);

class StepBench {
 public:
  // `choices` are GEMM algorithms, for using the same ones as another model.
  explicit StepBench(const RunConfig& config, std::span<const GemmChoice> choices = {});

  // Seconds for `count` steps, one after another, with one wait after each as in training.
  double run(int64_t count);

  [[nodiscard]] const RunConfig& config() const { return config_; }
  [[nodiscard]] Device& device() { return *device_; }
  [[nodiscard]] TrainingModel& model() { return *model_; }
  [[nodiscard]] double first_loss() const { return first_loss_; }
  [[nodiscard]] double last_loss() const { return last_loss_; }
  [[nodiscard]] int64_t not_finite() const { return not_finite_; }  // steps without an update
  [[nodiscard]] bool replayed() const { return work_->replayed(); }
  // Device memory taken since before the model was made.
  [[nodiscard]] int64_t memory_taken() { return probe_->memory_in_use() - memory_before_; }
  [[nodiscard]] int64_t planned_bytes() const { return allocator_->use().total(); }
  [[nodiscard]] std::string memory_meaning() const { return probe_->memory_meaning(); }

 private:
  static constexpr int64_t kBatches = 4;  // of random tokens, in turn
  struct RandomBatch {
    std::vector<int32_t> tokens, targets;
  };
  void step();

  RunConfig config_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceProbe> probe_;
  int64_t memory_before_;
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<TrainingModel> model_;
  std::unique_ptr<DeviceStep> work_;
  std::vector<RandomBatch> batches_;
  int64_t step_ = 0, not_finite_ = 0;
  double first_loss_ = 0, last_loss_ = 0;
};

struct StepEffort {
  int64_t warm_up = 5;  // steps
  int64_t steps = 50;   // measured in total
  int64_t blocks = 5;   // in which they are measured
};

// Measures one model: tokens per second, share of the device's GEMM rate, memory against the plan,
// parts of a step.
Json measure_steps(const StepConfig& config, const StepEffort& effort, double bf16_gemm_rate);

// Measures several models in turn (A B C A B C ...), effort.blocks rounds: the rate of each, and
// its ratio to the first one's, per round.
Json measure_in_turn(const std::vector<StepConfig>& configs, const StepEffort& effort);

}  // namespace mpt
