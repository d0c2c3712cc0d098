// Ten updates of the golden model by each rule, against traces from float64 PyTorch.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "core/json/config_reader.h"
#include "model/closeness.h"
#include "model/model_bench.h"
#include "optim/optimizer.h"
#include "support/draws.h"
#include "train/step/training_model.h"

namespace mpt::test {
namespace {

// The cost of float32 depends on the rule and grows from step to step; the file records the cost in
// PyTorch, and runs from weights one rounding apart measure it here: several, because M+Adam at
// these rates amplifies any rounding, one of them more than another. Another order of the same
// sums, as from other vectors and tiles, may cost twice the maximum of that.
constexpr int kNudges = 8;
constexpr double kTimesPyTorch = 2;
constexpr double kLossRounding = 2e-7;  // of PyTorch's float32 losses at the first steps
constexpr double kWeightRounding = std::numeric_limits<float>::epsilon();  // of a weight of size 1

struct Trace {
  GoldenModel start;
  OptimizerConfig config;
  std::vector<double> losses, float32_losses, grad_norms, grad_scales;
  double final_loss;
  NamedValues final_weights;
};

OptimizerConfig optimizer_config(const std::string& rule, const nlohmann::json& options) {
  Json keys = options;
  keys["rule"] = rule;
  OptimizerConfig config;
  Problems problems;
  read_fields(JsonDocument::of_value(std::move(keys), "trace"), Fields::of(config), problems);
  throw_problems(problems);
  return config;
}

Trace load_trace(const std::string& rule) {
  const SafetensorsReader file(posix_file_system(), golden_path("llama_tiny_" + rule + "_trace"));
  const auto json = [&](const char* key) { return nlohmann::json::parse(file.metadata().at(key)); };
  Trace trace{.start = load_golden("llama_tiny"),
              .config = optimizer_config(file.metadata().at("rule"), json("options")),
              .losses = json("losses"),
              .float32_losses = json("float32_losses"),
              .grad_norms = json("grad_norms"),
              .grad_scales = json("grad_scales"),
              .final_loss = json("final_loss"),
              .final_weights = {}};
  for (const auto& entry : file.tensors())
    trace.final_weights[entry.name] = stored_values<float>(file, entry);
  return trace;
}

struct Case {
  const char* rule;
  int64_t rows_at_a_time;
};

struct StepFound {
  double loss, norm;
  float scale;
};

// The model with its optimizer, on the path of a trace.
class TraceRun {
 public:
  TraceRun(const Trace& trace, int64_t rows, const NamedValues& weights)
      : trace_(trace),
        rows_(rows),
        bench_(trace.start.config, {.micro_batch = {rows, trace.start.batch.seq_len},
                                    .additions = trace.start.batch.rows / rows}),
        optimizer_(trace.config, {.state = Format::kF32}, update_targets(bench_.store()),
                   bench_.device(), bench_.allocator()) {
    bench_.set_weights(weights);
    optimizer_.weights_initialized();
  }

  StepFound step(int64_t t) {
    const double loss = bench_.step(trace_.start, rows_) / double(trace_.start.predicted());
    const double norm = optimizer_.grad_norm();
    const float scale = clip_scale(trace_.config.clip_grad_norm, norm);
    optimizer_.step({.t = t, .grad_scale = scale});
    return {loss, norm, scale};
  }
  ModelBench& bench() { return bench_; }

 private:
  const Trace& trace_;
  int64_t rows_;
  ModelBench bench_;
  Optimizer optimizer_;
};

// Moves half of the weights by one unit in the last place, up or down, as rounding may do.
NamedValues nudged(NamedValues weights, uint64_t seed) {
  Draws draws(seed);
  for (auto& [name, values] : weights)
    for (float& value : values)
      if (draws.coin()) value = std::nextafter(value, draws.coin() ? HUGE_VALF : -HUGE_VALF);
  return weights;
}

// Returns the 99th percentile of the differences between weights of a tensor. Adam divides by the
// size of a gradient: if that is little more than rounding, so is the update, so that the largest
// difference only shows how small the smallest gradient happens to be.
double ordinary_difference(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<double> differences(a.size());
  for (size_t i = 0; i < a.size(); ++i) differences[i] = std::abs(double(a[i]) - double(b[i]));
  const auto at = differences.begin() + std::ptrdiff_t(0.99 * double(a.size() - 1));
  std::nth_element(differences.begin(), at, differences.end());
  return *at;
}

// Runs that differ from another one only by rounding.
class NudgedRuns {
 public:
  NudgedRuns(const Trace& trace, int64_t rows) {
    for (uint64_t seed = 1; seed <= kNudges; ++seed)
      runs_.push_back(std::make_unique<TraceRun>(trace, rows, nudged(trace.start.weights, seed)));
  }
  // Returns their maximum distance from the values found.
  StepFound step(int64_t t, const StepFound& found) {
    StepFound apart{};
    for (const auto& run : runs_) {
      const StepFound beside = run->step(t);
      apart.loss = std::max(apart.loss, std::abs(found.loss - beside.loss));
      apart.norm = std::max(apart.norm, std::abs(found.norm - beside.norm));
    }
    return apart;
  }
  double weight_difference(const std::string& name, const std::vector<float>& weights) {
    double most = 0;
    for (const auto& run : runs_)
      most = std::max(most, ordinary_difference(weights, run->bench().weights().at(name)));
    return most;
  }

 private:
  std::vector<std::unique_ptr<TraceRun>> runs_;
};

class TrainingTrace : public testing::TestWithParam<Case> {};

TEST_P(TrainingTrace, TenSteps) {
  const Trace trace = load_trace(GetParam().rule);
  const GoldenModel& start = trace.start;
  const int64_t rows = GetParam().rows_at_a_time;
  TraceRun run(trace, rows, start.weights);
  NudgedRuns others(trace, rows);
  ASSERT_EQ(trace.losses.size(), 10u);
  // Effect of float32 on the loss so far, in PyTorch and here, and on the norm.
  double apart = kLossRounding, norm_apart = 0;
  for (size_t i = 0; i < trace.losses.size(); ++i) {
    const StepFound found = run.step(int64_t(i) + 1), nudged = others.step(int64_t(i) + 1, found);
    apart = std::max({apart, std::abs(trace.float32_losses[i] - trace.losses[i]), nudged.loss});
    norm_apart = std::max({norm_apart, 10 * apart, nudged.norm});
    EXPECT_NEAR(found.loss, trace.losses[i], kTimesPyTorch * apart) << "step " << i + 1;
    EXPECT_NEAR(found.norm, trace.grad_norms[i], kTimesPyTorch * norm_apart) << "step " << i + 1;
    EXPECT_NEAR(double(found.scale), trace.grad_scales[i], kTimesPyTorch * norm_apart)
        << "step " << i + 1;
  }
  ModelBench& bench = run.bench();
  double last = 0;
  for (int64_t first = 0; first < start.batch.rows; first += rows)
    last += bench.llama().evaluate(start.rows(first, rows));
  EXPECT_NEAR(last / double(start.predicted()), trace.final_loss, 2 * kTimesPyTorch * apart);
  for (const auto& [name, weights] : bench.weights()) {
    const double nudged_apart = std::max(kWeightRounding, others.weight_difference(name, weights));
    EXPECT_LE(ordinary_difference(weights, trace.final_weights.at(name)),
              kTimesPyTorch * nudged_apart)
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TrainingTrace,
                         testing::Values(Case{"adamw", 2}, Case{"adamw", 1}, Case{"m_plus_adam", 2},
                                         Case{"m_plus_adam", 1}),
                         [](const testing::TestParamInfo<Case>& c) {
                           return fmt::format("{}_rows{}", c.param.rule, c.param.rows_at_a_time);
                         });

}  // namespace
}  // namespace mpt::test
