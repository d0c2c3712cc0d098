// A model that takes whole training steps on random tokens: what train/trainer.h does between two
// batches, without data, logs and checkpoints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/json/json_parse.h"
#include "device_probe.h"
#include "train/training_model.h"

namespace mpt {

// How a config's step is changed for measuring. 0 leaves what the config says.
struct StepShape {
  int64_t tokens_per_step = 0;
  int64_t seq_len = 0;
  int64_t micro_batch_rows = 0;
};
inline constexpr int64_t kAutomaticRows = -1;  // as micro_batch_rows: the most that fit

struct StepConfig {
  std::string path;
  std::vector<std::string> overrides;  // "key=value"
  StepShape shape;
  std::string device = "cpu";
  int64_t models = 1;  // that share the device's memory
};
RunConfig resolved(const StepConfig& config);

class StepBench {
 public:
  // `choices`: of algorithms of GEMMs, where they are to be the same as another model's.
  explicit StepBench(const RunConfig& config, std::span<const GemmChoice> choices = {});

  // Seconds that `count` steps take, one after another, waiting once after each as training does.
  double run(int64_t count);

  [[nodiscard]] const RunConfig& config() const { return config_; }
  [[nodiscard]] Device& device() { return *device_; }
  [[nodiscard]] TrainingModel& model() { return *model_; }
  [[nodiscard]] double first_loss() const { return first_loss_; }
  [[nodiscard]] double last_loss() const { return last_loss_; }
  [[nodiscard]] int64_t not_finite() const { return not_finite_; }  // steps without an update
  [[nodiscard]] bool replayed() const { return work_->replayed(); }
  // Of the device, taken since before the model was made.
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
  std::unique_ptr<TrainingStep> work_;
  std::vector<RandomBatch> batches_;
  int64_t step_ = 0, not_finite_ = 0;
  double first_loss_ = 0, last_loss_ = 0;
};

struct StepEffort {
  int64_t warm_up = 5;  // steps
  int64_t steps = 50;   // that are measured, in all
  int64_t blocks = 5;   // that they are measured in
};

// One model: tokens a second, share of the device's GEMM rate, memory against the plan, parts of
// a step.
Json measure_steps(const StepConfig& config, const StepEffort& effort, double bf16_gemm_rate);

// Several, in turn (A B C A B C ...): each one's rate, and its ratio to the first one's, round by
// round. effort.blocks rounds.
Json measure_in_turn(const std::vector<StepConfig>& configs, const StepEffort& effort);

}  // namespace mpt
