// Ten updates of the golden model by each rule, against the traces that float64 PyTorch left.
#include <gtest/gtest.h>

#include "model/closeness.h"
#include "model/model_bench.h"
#include "optim/optimizer.h"
#include "train/run_model.h"

namespace mpt::test {
namespace {

// What float32 costs depends on the rule and grows from step to step; the file says what it costs PyTorch.
// Another order of the same sums may cost a few times that: M+Adam at these rates amplifies any rounding.
constexpr double kTimesPyTorch = 5;
constexpr double kLossRounding = 2e-7;  // of PyTorch's float32 losses at the first steps

struct Trace {
  GoldenModel start;
  OptimizerConfig config;
  std::vector<double> losses, float32_losses, grad_norms, grad_scales;
  double final_loss, float32_max_weight_deviation;
  NamedValues final_weights;
};

OptimizerConfig optimizer_config(const std::string& rule, const nlohmann::json& options) {
  return {.rule = enum_from_name<UpdateRule>(rule).value(),
          .lr_additive = options.at("lr_additive"),
          .lr_multiplicative = options.value("lr_multiplicative", 0.0),
          .beta1 = options.at("beta1"),
          .beta2 = options.at("beta2"),
          .eps = options.at("eps"),
          .clip_grad_norm = options.at("clip_grad_norm"),
          .weight_decay_additive = options.at("weight_decay_additive"),
          .tau = options.value("tau", 1e-8),
          .clip_multiplicative_direction = options.value("clip_multiplicative_direction", 10.0),
          .clip_relative_step = options.value("clip_relative_step", 0.75)};
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
              .float32_max_weight_deviation = json("float32_max_weight_deviation"),
              .final_weights = {}};
  for (const auto& entry : file.tensors())
    trace.final_weights[entry.name] = stored_values<float>(file, entry);
  return trace;
}

struct Case {
  const char* rule;
  int64_t rows_at_a_time;
};

class TrainingTrace : public testing::TestWithParam<Case> {};

TEST_P(TrainingTrace, TenSteps) {
  const Trace trace = load_trace(GetParam().rule);
  const GoldenModel& start = trace.start;
  const int64_t rows = GetParam().rows_at_a_time;
  ModelBench bench(start.config,
                   {.micro_batch = {rows, start.batch.seq_len}, .additions = start.batch.rows / rows});
  Optimizer optimizer(trace.config, {.state = Format::kF32}, update_targets(bench.store()), bench.device(),
                      bench.allocator());
  bench.set_weights(start.weights);
  optimizer.weights_initialized();
  ASSERT_EQ(trace.losses.size(), 10u);
  double apart = kLossRounding;  // of float32 PyTorch so far
  for (size_t i = 0; i < trace.losses.size(); ++i) {
    apart = std::max(apart, std::abs(trace.float32_losses[i] - trace.losses[i]));
    const double loss = bench.step(start, rows) / double(start.predicted());
    EXPECT_NEAR(loss, trace.losses[i], kTimesPyTorch * apart) << "step " << i + 1;
    const double norm = optimizer.grad_norm();
    const float scale = clip_scale(trace.config.clip_grad_norm, norm);
    EXPECT_NEAR(norm, trace.grad_norms[i], 10 * kTimesPyTorch * apart) << "step " << i + 1;
    EXPECT_NEAR(double(scale), trace.grad_scales[i], 10 * kTimesPyTorch * apart) << "step " << i + 1;
    optimizer.step({.t = int64_t(i) + 1,
                    .lr_additive = trace.config.lr_additive,
                    .lr_multiplicative = trace.config.lr_multiplicative,
                    .grad_scale = scale});
  }
  double last = 0;
  for (int64_t first = 0; first < start.batch.rows; first += rows)
    last += bench.llama().evaluate(start.rows(first, rows));
  EXPECT_NEAR(last / double(start.predicted()), trace.final_loss, 2 * kTimesPyTorch * apart);
  for (const auto& [name, weights] : bench.weights()) {
    const std::vector<float>& want = trace.final_weights.at(name);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(weights[i], want[i], kTimesPyTorch * trace.float32_max_weight_deviation)
          << name << " " << i;
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
