#include "step_bench.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "config/batch_plan.h"
#include "config/run_device.h"
#include "core/random.h"
#include "optim/schedule.h"
#include "samples.h"
#include "train/reports/gemm_rate.h"
#include "train/resources/memory_fit.h"
#include "train/step/device_step.h"

namespace mpt {
namespace {

std::vector<int32_t> random_tokens(int64_t count, int64_t vocab, uint32_t row) {
  const RandomCounter counter{1, 0, row, 0, kSyntheticStream};
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = int32_t(uint64_t{counter.word(uint32_t(i))} * uint64_t(vocab) >> 32);
  return tokens;
}

RunConfig load_with_rows(const StepConfig& config, int64_t rows) {
  std::vector<std::string> overrides = config.overrides;
  const auto set = [&](const char* key, int64_t value) {
    if (value > 0) overrides.push_back(fmt::format("{}={}", key, value));
  };
  set("batch.seq_len", config.shape.seq_len);
  set("batch.tokens_per_step", config.shape.tokens_per_step);
  set("batch.micro_batch_rows", rows);
  overrides.push_back("device.type=" + config.device);
  return load_run_config(config.path, overrides);
}

}  // namespace

// Resolves rows that are left open like `mpretrain train`.
RunConfig resolved(const StepConfig& config) {
  const int64_t rows = config.shape.micro_batch_rows;
  RunConfig run = load_with_rows(config, rows);
  if (rows == kAutomaticRows) run.batch.micro_batch_rows = 0;
  const std::unique_ptr<Device> device = make_device(run.device);
  return choose_rows(run, *device, Communicator::single(), free_memory(*device, config.models))
      .config;
}

// --- a model -------------------------------------------------------------------------------------

StepBench::StepBench(const RunConfig& config, std::span<const GemmChoice> choices)
    : config_(config),
      device_(make_device(config.device)),
      probe_(make_probe(*device_)),
      memory_before_(probe_->memory_in_use()),
      allocator_(device_->make_allocator()) {
  if (!choices.empty()) device_->gemm().restore(choices);
  model_ = std::make_unique<TrainingModel>(config_, *device_, *allocator_);
  work_ = std::make_unique<DeviceStep>(*model_, batch_plan(config_.batch, 0, 1), *device_);
  initialize_weights(model_->weights, config_.model.initializer_range, config_.seed, *device_);
  model_->weights_changed();
  model_->optimizer.weights_initialized();
  const int64_t count = config_.batch.tokens_per_step, vocab = config_.model.vocab_size;
  for (uint32_t i = 0; i < kBatches; ++i)
    batches_.push_back(
        {random_tokens(count, vocab, 2 * i), random_tokens(count, vocab, 2 * i + 1)});
}

void StepBench::step() {
  const RandomBatch& batch = batches_[size_t(step_ % kBatches)];
  const double factor = schedule_factor(config_.schedule, ++step_, total_steps(config_));
  model_->llama.stage({batch.tokens, batch.targets}, float(1.0 / double(batch.targets.size())));
  model_->optimizer.prepare({.t = step_ - not_finite_, .lr_factor = factor});
  work_->enqueue();
  device_->synchronize();
  last_loss_ = model_->llama.loss() / double(batch.targets.size());
  if (step_ == 1) first_loss_ = last_loss_;
  if (model_->optimizer.control().proceed == 0) ++not_finite_;
}

double StepBench::run(int64_t count) {
  return seconds_of(*device_, [&] {
    for (int64_t i = 0; i < count; ++i) step();
  });
}

// --- measurements --------------------------------------------------------------------------------

namespace {

Json description_of(const StepConfig& config, const RunConfig& run, Device& device) {
  return {{"config", config.path},
          {"overrides", config.overrides},
          {"weights", name_of(run.precision.weights)},
          {"compute", name_of(run.precision.compute)},
          {"rule", rule_name(run.optimizer.rule)},
          {"writeback", name_of(run.optimizer.weight_rounding)},
          {"tokens_per_step", run.batch.tokens_per_step},
          {"seq_len", run.batch.seq_len},
          {"micro_batch_rows", run.batch.rows_per_micro_batch()},
          {"attention", attention_in_use(run, device)},
          {"activation_recompute", name_of(run.train.activation_recompute)}};
}

// Evidence that the steps were real ones.
Json outcome_of(const StepBench& bench) {
  return {{"first_loss", bench.first_loss()},
          {"last_loss", bench.last_loss()},
          {"loss_finite", std::isfinite(bench.first_loss()) && std::isfinite(bench.last_loss())},
          {"steps_without_update", bench.not_finite()},
          {"replayed", bench.replayed()}};
}

Json memory_of(StepBench& bench) {
  const int64_t taken = bench.memory_taken(), planned = bench.planned_bytes();
  return {{"planned_bytes", planned},
          {"taken_bytes", taken},
          {"taken_over_planned", double(taken) / double(planned)},
          {"meaning", bench.memory_meaning()}};
}

// The parts of a step one by one, without a recording: milliseconds per step.
Json parts_of(StepBench& bench) {
  const Effort effort{.seconds_per_block = 0.1, .blocks = 3};
  TrainingModel& model = bench.model();
  Device& device = bench.device();
  const int64_t micro_batches = bench.config().batch.micro_batches();
  const auto milliseconds = [&](double times, const std::function<void()>& work) {
    return 1e3 * times * median_of(seconds_per_run(device, effort, work));
  };
  return {{"gradients", milliseconds(double(micro_batches),
                                     [&] { model.llama.forward_backward(0, Accumulate::kNo); })},
          {"rounding of gradients", milliseconds(1, [&] { model.llama.finish_gradients(); })},
          {"gradient norm",
           milliseconds(1, [&] { model.optimizer.measure_gradients(model.llama.losses()); })},
          {"update", milliseconds(1,
                                  [&] {
                                    model.optimizer.update();
                                    model.optimizer.rescale();
                                  })},
          {"weights for GEMMs", milliseconds(1, [&] { model.weights_changed(); })}};
}

double mean_tokens_per_second(const StepBench& bench, int64_t steps, double seconds) {
  return double(steps) * double(bench.config().batch.tokens_per_step) / seconds;
}

}  // namespace

Json measure_steps(const StepConfig& config, const StepEffort& effort, double bf16_gemm_rate) {
  const RunConfig run = resolved(config);
  StepBench bench(run);
  bench.run(effort.warm_up);
  const int64_t steps = std::max<int64_t>(effort.steps / effort.blocks, 1);
  std::vector<double> tokens_per_second;
  for (int64_t block = 0; block < effort.blocks; ++block)
    tokens_per_second.push_back(mean_tokens_per_second(bench, steps, bench.run(steps)));
  const double median = median_of(tokens_per_second),
               flops = flops_per_token(run.model, run.batch.seq_len);
  Json json = description_of(config, run, bench.device());
  json["steps_per_block"] = steps;
  json["tokens_per_second"] = summary_of(tokens_per_second);
  json["milliseconds_per_step"] = 1e3 * double(run.batch.tokens_per_step) / median;
  json["flops_per_token"] = flops;
  json["bf16_gemm_rate"] = bf16_gemm_rate;
  json["percent_of_bf16_rate"] = 100 * flops * median / bf16_gemm_rate;
  json["formula"] =
      "100 (6 N_gemms + 6 L C T) tokens/s / BF16 GEMM rate measured in the same process; "
      "N_gemms: weights of the linear layers and the head; recomputation does not count";
  json["memory"] = memory_of(bench);
  json["outcome"] = outcome_of(bench);
  json["parts_milliseconds"] = parts_of(bench);
  return json;
}

// Resolves all configs with micro-batches of a size that fits each.
static std::vector<RunConfig> resolved_alike(const std::vector<StepConfig>& configs) {
  std::vector<RunConfig> runs;
  for (const StepConfig& config : configs) runs.push_back(resolved(config));
  const int64_t rows = std::ranges::min(runs, {}, [](const RunConfig& run) {
                         return run.batch.rows_per_micro_batch();
                       }).batch.rows_per_micro_batch();
  for (RunConfig& run : runs) run.batch.micro_batch_rows = rows;
  return runs;
}

Json measure_in_turn(const std::vector<StepConfig>& configs, const StepEffort& effort) {
  std::vector<std::unique_ptr<StepBench>> benches;
  std::vector<GemmChoice> choices;  // the same GEMMs by the same algorithms
  for (const RunConfig& run : resolved_alike(configs)) {
    benches.push_back(std::make_unique<StepBench>(run, choices));
    choices = benches.back()->device().gemm().choices();
    benches.back()->run(effort.warm_up);
  }
  const int64_t steps = std::max<int64_t>(effort.steps / effort.blocks, 1);
  std::vector<std::vector<double>> rates(benches.size()), ratios(benches.size());
  for (int64_t round = 0; round < effort.blocks; ++round)
    for (size_t i = 0; i < benches.size(); ++i) {
      rates[i].push_back(mean_tokens_per_second(*benches[i], steps, benches[i]->run(steps)));
      ratios[i].push_back(rates[i].back() / rates[0].back());
    }
  Json all = Json::array();
  for (size_t i = 0; i < benches.size(); ++i) {
    Json json = description_of(configs[i], benches[i]->config(), benches[i]->device());
    json["tokens_per_second"] = summary_of(rates[i]);
    json["over_first"] = summary_of(ratios[i]);
    json["outcome"] = outcome_of(*benches[i]);
    all.push_back(std::move(json));
  }
  return {{"steps_per_round", steps}, {"models", all}};
}

}  // namespace mpt
