#include "plan/time_estimate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "config/batch_plan.h"
#include "core/check.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/text/counted.h"
#include "model/parameters.h"
#include "train/reports/gemm_rate.h"
#include "train/step/device_step.h"
#include "train/step/training_model.h"
#include "train/step_schedule.h"

namespace mpt {
namespace {

constexpr double kSampleSeconds = 0.08;  // of a measured step at the rate of large GEMMs
constexpr int64_t kMultiple = 16;        // all sizes are multiples, for FP8 GEMMs

int64_t half(int64_t size) { return (size / 2 + kMultiple - 1) / kMultiple * kMultiple; }

// Halves the width, keeping the head size; false if it does not divide or is already small.
bool narrow(LlamaConfig& model) {
  constexpr int64_t kLeastWidth = 512;
  if (model.hidden_size <= kLeastWidth || model.num_attention_heads % 2 != 0 ||
      model.key_value_heads() % 2 != 0 || model.hidden_size % (2 * kMultiple) != 0)
    return false;
  model.num_key_value_heads = model.key_value_heads() / 2;
  model.head_size = model.head_dim();
  model.hidden_size /= 2;
  model.num_attention_heads /= 2;
  model.intermediate_size = half(model.intermediate_size);
  return true;
}

// Reduces one size; false if all are at their minimum.
bool shrink(RunConfig& config) {
  constexpr int64_t kLeastVocabulary = 1024, kLeastRow = 64;
  if (config.model.num_hidden_layers > 1)
    config.model.num_hidden_layers /= 2;
  else if (config.model.vocab_size > kLeastVocabulary)
    config.model.vocab_size = half(config.model.vocab_size);
  else if (narrow(config.model))
    return true;
  else if (config.batch.seq_len > kLeastRow)
    config.batch.seq_len = half(config.batch.seq_len);
  else
    return false;
  return true;
}

double flops_per_row(const RunConfig& config) {
  return double(config.batch.seq_len) * flops_per_token(config.model, config.batch.seq_len);
}

std::vector<int32_t> random_tokens(const RunConfig& config, uint32_t which) {
  const RandomCounter counter{config.seed, 0, which, 0, kSyntheticStream};
  std::vector<int32_t> tokens(static_cast<size_t>(config.batch.tokens_per_step));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] =
        int32_t(uint64_t{counter.word(uint32_t(i))} * uint64_t(config.model.vocab_size) >> 32);
  return tokens;
}

struct StepSeconds {
  double gradients = 0, update = 0;
};

// A run on random tokens, one step at a time.
class Sample {
 public:
  Sample(const RunConfig& config, Device& device)
      : config_(config),
        device_(device),
        allocator_(device.make_allocator()),
        model_(config, device, *allocator_),
        work_(model_, batch_plan(config.batch, 0, 1), device) {
    initialize_weights(model_.weights, config.model.initializer_range, config.seed, device);
    model_.weights_changed();
    model_.optimizer.weights_initialized();
  }

  StepSeconds step() {
    const std::vector<int32_t> tokens = random_tokens(config_, 0),
                               targets = random_tokens(config_, 1);
    ++step_;
    return {.gradients = timed([&] {
              model_.llama.stage({tokens, targets}, float(1.0 / double(targets.size())));
              work_.enqueue_gradients();
            }),
            .update = timed([&] {
              model_.optimizer.prepare({.t = step_});
              work_.enqueue_update();
            })};
  }

 private:
  template <class Work>
  double timed(const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    device_.synchronize();
    return seconds_since(start);
  }

  const RunConfig& config_;
  Device& device_;
  std::unique_ptr<Allocator> allocator_;
  TrainingModel model_;
  DeviceStep work_;
  int64_t step_ = 0;
};

StepSeconds measured_step(const RunConfig& sample, Device& device) {
  if (planned_memory(sample, device).total() > device.memory_bytes())
    throw error("the step to measure does not fit in memory");
  Sample run(sample, device);
  run.step();  // touches memory for the first time
  return run.step();
}

std::string description_of(const RunConfig& sample, const RunConfig& config) {
  const LlamaConfig& model = sample.model;
  const std::string rows = fmt::format(
      "{} of {} tokens", counted(sample.batch.rows_per_step(), "row"), sample.batch.seq_len);
  if (model == config.model) return rows;
  return fmt::format("{} and a smaller model: {} of width {}, vocabulary {}", rows,
                     counted(model.num_hidden_layers, "layer"), model.hidden_size,
                     model.vocab_size);
}

// CPU ranks share this machine: together they are as fast as one.
std::string description_of(int64_t ranks, const Device& device) {
  if (ranks == 1) return "";
  return fmt::format(
      "; {} ranks {}, communication not included", ranks,
      device.backend() == Backend::kCpu ? "sharing this machine" : "with one such GPU each");
}

struct Speed {
  double flops_per_second = 0;  // of forward and backward
  double update_seconds = 0;
  std::string basis;
};

Speed measured_speed(const RunConfig& config, Device& device) {
  constexpr double kTooLong = 4;  // multiple of a sample's intended time
  const double gemms = measured_gemm_rate(device), flops = kSampleSeconds * gemms;
  const RunConfig sample = sample_of(config, flops);
  if (flops_per_step(sample) > kTooLong * flops)
    return {
        .flops_per_second = gemms,
        .basis = fmt::format("at {:.0f} GFLOP/s of large GEMMs measured now; training reaches less",
                             gemms / 1e9)};
  const StepSeconds step = measured_step(sample, device);
  const double rate = flops_per_step(sample) / step.gradients,
               growth =
                   double(parameter_count(config.model)) / double(parameter_count(sample.model));
  return {.flops_per_second = rate,
          .update_seconds = growth * step.update,
          .basis = fmt::format("at {:.0f} GFLOP/s measured now ({})", rate / 1e9,
                               description_of(sample, config))};
}

TimeEstimate measured_estimate(const RunConfig& config, Device& device, int64_t ranks) {
  RunConfig rank = config;
  rank.batch.micro_batch_rows = batch_plan(config.batch, 0, ranks).micro_batch_rows;
  const Speed speed = measured_speed(rank, device);
  const double devices = device.backend() == Backend::kCpu ? 1 : double(ranks),
               rate = devices * speed.flops_per_second;
  const bool sharded = config.distributed.sharding == Sharding::kOptimizer;
  const double seconds_per_step =
                   flops_per_step(config) / rate + speed.update_seconds / (sharded ? devices : 1),
               evaluated = double(evaluations(config)) * double(config.data.validation.size()) *
                           double(config.eval.tokens),
               evaluation =
                   evaluated * flops_per_token(config.model, config.batch.seq_len) / 3 / rate;
  return {.seconds = double(total_steps(config)) * seconds_per_step + evaluation,
          .seconds_per_step = seconds_per_step,
          .flops_per_second = speed.flops_per_second,
          .basis = speed.basis + description_of(ranks, device)};
}

}  // namespace

RunConfig sample_of(const RunConfig& config, double flops) {
  RunConfig sample = config;
  while (flops_per_row(sample) > flops && shrink(sample)) continue;
  const auto rows = int64_t(flops / flops_per_row(sample));
  sample.batch.micro_batch_rows = std::clamp<int64_t>(rows, 1, config.batch.rows_per_micro_batch());
  sample.batch.tokens_per_step = sample.batch.micro_batch_rows * sample.batch.seq_len;
  return sample;
}

double flops_per_step(const RunConfig& config) {
  return double(config.batch.tokens_per_step) * flops_per_token(config.model, config.batch.seq_len);
}

int64_t evaluations(const RunConfig& config) {
  return config.data.validation.empty() ? 0 : DueSteps(config, config.eval.every_steps).count();
}

TimeEstimate estimate_time(const RunConfig& config, Device& device, int64_t ranks) {
  try {
    return measured_estimate(config, device, ranks);
  } catch (const Error& reason) {
    return {.basis = reason.what()};
  }
}

std::string about(double seconds) {
  struct Unit {
    double seconds, from;
    std::string_view name;
  };
  constexpr double kMinute = 60, kHour = 3600, kDay = 86400, kYear = 365.25 * kDay;
  constexpr Unit kUnits[]{{kYear, kYear, "years"},
                          {kDay, 2 * kDay, "days"},
                          {kHour, 1.5 * kHour, "h"},
                          {kMinute, 1.5 * kMinute, "min"},
                          {1, 0, "s"}};
  const Unit& unit =
      *std::ranges::find_if(kUnits, [&](const Unit& u) { return seconds >= u.from; });
  const double count = seconds / unit.seconds;
  return fmt::format("about {:.{}f} {}", count, count < 9.95 ? 1 : 0, unit.name);
}

}  // namespace mpt
