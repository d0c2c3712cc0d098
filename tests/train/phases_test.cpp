// Runs in phases: the state that a phase takes over from the one before it, and resuming across its
// beginning.
#include <fstream>
#include <optional>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_state.h"
#include "config/run_config_json.h"
#include "config/run_device.h"
#include "config/run_paths.h"
#include "model/model_bench.h"
#include "optim/rule_list.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/ranks_run.h"
#include "support/temp_directory.h"
#include "train/adamw_run.h"
#include "train/resume/phase_entry.h"
#include "train/train_command.h"

namespace mpt::test {
namespace {

using Overrides = std::vector<std::string>;
constexpr int64_t kBoundary = 12;  // steps of the first half

TrainState state_of(const std::string& checkpoint) {
  return read_checkpoint_state(posix_file_system(), checkpoint);
}

// Trains like the program: each rank has a trainer for each phase, from the first or from that of a
// checkpoint.
void train_phases(int64_t ranks, const RunConfig& config, const std::string& from = "") {
  posix_file_system().create_directories(run_directory(config));
  const std::vector<RunPhase> phases = run_phases(config);
  const size_t first = from.empty() ? 0 : phase_after(phases, state_of(from).step);
  on_ranks(config, ranks, [&](RankOfRun& rank) {
    rank.ranks.or_abort([&] {
      std::string begin = from;
      for (size_t phase = first; phase < phases.size(); ++phase) {
        Trainer trainer(config, *rank.device, posix_file_system(), rank.ranks, phase);
        begin.empty() ? trainer.initialize() : trainer.resume(begin);
        EXPECT_TRUE(trainer.run());
        begin = checkpoint_path(config, phases[phase].last_step);
      }
    });
  });
}

class PhasesRun : public testing::Test {
 protected:
  void SetUp() override { write_tiny_data(path()); }
  [[nodiscard]] const std::string& path() const { return directory_.path(); }
  [[nodiscard]] RunConfig config(const std::string& name, Overrides overrides,
                                 const std::string& phases = "") const {
    if (!phases.empty()) overrides.push_back("phases=" + phases);
    overrides.emplace_back("device.threads=1");
    return tiny_config(path(), name, overrides);
  }
  TempDirectory directory_{memory_directory()};
};

// --- identical phases ----------------------------------------------------------------------------

struct Regime {
  std::string name;
  Overrides overrides;
  bool has_residual = false;  // impossible for weights in FP32
};
std::string name_of_regime(const testing::TestParamInfo<Regime>& info) { return info.param.name; }
void PrintTo(const Regime& regime, std::ostream* out) { *out << regime.name; }

const std::vector<Regime> kRegimes{
    {"bf16", {}},
    {"fp32",
     {"precision.weights=fp32", "precision.compute=fp32", "precision.gradient=fp32",
      "precision.optimizer_state=fp32"}},
    {"fp8", {"precision.weights=block_fp8", "precision.compute=fp8"}},
    {"nvfp4", {"precision.weights=nvfp4", "precision.compute=fp8", "precision.fp8_recipe=current"}},
    {"nvfp4_live", {"precision.weights=nvfp4", "precision.nvfp4_scale_mode=live"}},
    {"stochastic", {"optimizer.weight_rounding=stochastic", "precision.state_rounding=stochastic"}},
    {"kahan", {"optimizer.weight_rounding=kahan"}, true},
    {"remainder", {"optimizer.weight_rounding=remainder"}, true},
    {"master", {"precision.weights=nvfp4", "optimizer.weight_rounding=master"}, true},
    {"apollo_e",
     {"optimizer.apollo_e=channel", "optimizer.apollo_e_rank=4", "optimizer.apollo_e_gap=5"}},
    {"ema", {"precision.weights=nvfp4", "train.ema_decay=0.8"}},
    {"family", with_family({})},
};

class LikePhases : public PhasesRun, public testing::WithParamInterface<Regime> {};

TEST_P(LikePhases, HaveTheBitsOfOneRun) {
  Overrides overrides = GetParam().overrides;
  overrides.emplace_back("eval.every_steps=6");  // also at the ends of phases
  const RunConfig one = config("one", overrides),
                  two = config("two", overrides,
                               R"([{"until": 0.5}, {"until": 0.75}, {"until": 1}])");
  train_phases(1, one);
  train_phases(1, two);
  for (const int64_t step : {kBoundary, kBoundary + 1, kTinySteps})
    EXPECT_TRUE(tensors_at(one, step) == tensors_at(two, step)) << step;
  EXPECT_EQ(metrics_of(one), metrics_of(two));
}

INSTANTIATE_TEST_SUITE_P(Regimes, LikePhases, testing::ValuesIn(kRegimes), name_of_regime);

// --- other formats -------------------------------------------------------------------------------

constexpr const char* kFp32Tail = R"([{"until": 0.5}, {"until": 1, "precision": {
    "weights": "fp32", "compute": "fp32", "gradient": "fp32", "optimizer_state": "fp32"}}])";
constexpr const char* kRoundedTail = R"([{"until": 0.5}, {"until": 1, "precision": {
    "weights": "fp32", "compute": "fp32", "gradient": "fp32", "optimizer_state": "fp32"},
    "optimizer": {"rule": "m_plus_adam", "lr_additive": 1e-2, "lr_multiplicative": 1e-2}}])";
constexpr const char* kFp32 = R"({"weights": "fp32", "compute": "fp32", "gradient": "fp32",
    "optimizer_state": "fp32"})";

class AcrossTheBoundary : public PhasesRun, public testing::WithParamInterface<Regime> {};

TEST_P(AcrossTheBoundary, AResumedRunHasTheSameBits) {
  const char* const phases = GetParam().has_residual ? kRoundedTail : kFp32Tail;
  const RunConfig whole = config("whole", GetParam().overrides, phases);
  train_phases(1, whole);
  for (const int64_t step : {kBoundary - 1, kBoundary, kBoundary + 1}) {
    const RunConfig part = config(fmt::format("part{}", step), GetParam().overrides, phases);
    train_phases(1, part, checkpoint_path(whole, step));
    EXPECT_TRUE(tensors_at(part, kTinySteps) == tensors_at(whole, kTinySteps)) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Regimes, AcrossTheBoundary, testing::ValuesIn(kRegimes), name_of_regime);

RunConfig end_of(const RunConfig& config) { return run_phases(config).back().config; }

TEST_F(PhasesRun, RanksResumeAcrossTheBoundary) {
  const RunConfig whole = config("whole", {}, kFp32Tail);
  train_phases(3, whole);
  for (const int64_t step : {kBoundary - 1, kBoundary, kBoundary + 1}) {
    const RunConfig part = config(fmt::format("part{}", step), {}, kFp32Tail);
    train_phases(3, part, checkpoint_path(whole, step));
    EXPECT_TRUE(state_at(end_of(part), kTinySteps) == state_at(end_of(whole), kTinySteps)) << step;
  }
}

constexpr const char* kBf16States = R"({"weights": "fp32", "compute": "fp32", "gradient": "fp32",
    "optimizer_state": "bf16"})";

// Returns the initial tensors of the second of two phases, by name, in FP32.
std::map<std::string, std::vector<float>> begun_with(const RunConfig& run) {
  const auto device = make_device(run.device);
  const auto allocator = device->make_allocator();
  const std::vector<RunPhase> phases = run_phases(run);
  TrainingModel model(phases[1].config, *device, *allocator);
  const PhaseEntry entry = enter_phase(posix_file_system(), checkpoint_path(run, kBoundary),
                                       phases[0].config, phases[1].config, model, *device);
  EXPECT_TRUE(entry.keeps_moments);
  std::map<std::string, std::vector<float>> values;
  for (const NamedTensor& named : model.named_tensors())
    values[named.name] = values_of(*device, named.tensor);
  return values;
}

// The values are unchanged; only their format changes.
TEST_F(PhasesRun, WeightsAndMomentsAreWidenedExactly) {
  const RunConfig run = config(
      "wide", {}, R"([{"until": 0.5}, {"until": 1, "precision": )" + std::string(kFp32) + "}]");
  const CapturedLog log(spdlog::level::info);
  train_phases(1, run);
  EXPECT_TRUE(log.has("phase 2 of 2, steps 13 to 24: weights bf16 to fp32; kept m, v, v_e"))
      << log.text();
  int64_t compared = 0;
  for (const auto& [name, after] : begun_with(run)) {
    EXPECT_EQ(after, saved_values(run, kBoundary, name)) << name;
    compared += std::ssize(after);
  }
  EXPECT_GT(compared, 4 * 10000) << "weights and three moments";
}

TEST_F(PhasesRun, MomentsAreRoundedToNearest) {
  const RunConfig run =
      config("narrow",
             {"precision.weights=fp32", "precision.compute=fp32", "precision.gradient=fp32",
              "precision.optimizer_state=fp32", "optimizer.beta1=0.5"},
             R"([{"until": 0.5}, {"until": 1, "precision": )" + std::string(kBf16States) + "}]");
  train_phases(1, run);
  int64_t rounded = 0;
  for (const auto& [name, after] : begun_with(run)) {
    const bool is_moment = name.find('/') != std::string::npos;
    const std::vector<float> before = saved_values(run, kBoundary, name);
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < before.size(); ++i)
      ASSERT_EQ(after[i], is_moment ? rounded_to<bf16>(before[i]) : before[i]) << name;
    if (is_moment) rounded += std::ssize(before);
  }
  EXPECT_GT(rounded, 3 * 10000);
}

TEST_F(PhasesRun, AnotherRuleBeginsAnew) {
  const RunConfig run = config("rules", {}, R"([{"until": 0.5}, {"until": 1, "optimizer":
      {"rule": "adamw", "lr_additive": 1e-2}}])");
  const CapturedLog log(spdlog::level::info);
  train_phases(1, run);
  EXPECT_TRUE(log.has("phase 2 of 2, steps 13 to 24: weights bf16 as they are; new m, v"))
      << log.text();
  EXPECT_FALSE(state_of(checkpoint_path(run, kBoundary)).extra.contains("earlier_updates"));
  EXPECT_EQ(state_of(checkpoint_path(run, kTinySteps)).extra.at("earlier_updates"), kBoundary);
  EXPECT_EQ(state_of(checkpoint_path(run, kTinySteps)).config.at("optimizer").at("rule"), "adamw");
  // Moments of a single gradient.
  const auto adam = keys_of<AdamW::Config>(end_of(run).optimizer.rule);
  const double ratio = (1 - adam.beta1) * (1 - adam.beta1) / (1 - adam.beta2);
  const std::string name = "model.norm.weight";
  const std::vector<float> m = saved_values(run, kBoundary + 1, "m/" + name),
                           v = saved_values(run, kBoundary + 1, "v/" + name);
  constexpr double kThreeRoundings = 3.0 / 256;
  for (size_t i = 0; i < m.size(); ++i)
    EXPECT_NEAR(double(m[i]) * m[i] / v[i] / ratio, 1, kThreeRoundings) << i;
}

TEST_F(PhasesRun, AnotherRuleCountsItsOwnUpdates) {
  const RunConfig run = config("rules", kAdamWRun, R"([{"until": 0.5, "optimizer":
      {"rule": "lion", "lr_additive": 1e-3}}, {"until": 1}])");
  train_phases(1, run);
  expect_adamw_update(run, kBoundary + 1, 1);
  expect_adamw_update(run, kTinySteps, kTinySteps - kBoundary);
}

// The state that a rollback to its beginning finds.
TEST_F(PhasesRun, APhaseBeginsAnewWithoutTheStatesOfItsSteps) {
  const std::vector<std::pair<std::string, Overrides>> tails{
      {R"("optimizer": {"rule": "adamw", "lr_additive": 1e-2})", {}},
      {R"("optimizer": {"rule": "adamw", "lr_additive": 1e-2, "weight_rounding": "kahan"})", {}},
      {R"("optimizer": {"rule": "m_plus_adam", "lr_additive": 1e-2, "lr_multiplicative": 1e-2,
           "apollo_e": "channel", "apollo_e_rank": 4, "apollo_e_gap": 3})",
       {}},
      {R"("precision": {"weights": "nvfp4", "compute": "fp8"})", {}},
      {R"("precision": {"weights": "nvfp4", "compute": "fp8"},
          "optimizer": {"rule": "adamw", "lr_additive": 1e-2, "weight_rounding": "master"})",
       {}},
      {R"("precision": {"weights": "bf16", "compute": "fp8", "fp8_margin": 1})",
       {"precision.compute=fp8"}}};
  for (const auto& [tail, overrides] : tails) {
    SCOPED_TRACE(tail);
    const RunConfig run = config(fmt::format("tail{}", &tail - &tails.front().first), overrides,
                                 R"([{"until": 0.5}, {"until": 1, )" + tail + "}]");
    train_phases(1, run);
    const std::vector<RunPhase> phases = run_phases(run);
    const auto device = make_device(run.device);
    const auto begun = [&](bool after_its_steps) {
      const auto allocator = device->make_allocator();
      TrainingModel model(phases[1].config, *device, *allocator);
      if (after_its_steps) {
        load_verified_checkpoint(posix_file_system(), checkpoint_path(run, kTinySteps),
                                 model.parts_to_load(), *device);
        model.weights_changed();
        model.optimizer.states_loaded();
      }
      enter_phase(posix_file_system(), checkpoint_path(run, kBoundary), phases[0].config,
                  phases[1].config, model, *device);
      std::map<std::string, std::string> bytes;
      for (const NamedTensor& named : model.named_tensors()) {
        std::string& text = bytes[named.name];
        text.resize(size_t(named.tensor.elements() * size_of(named.tensor.dtype)));
        device->download(named.tensor, reinterpret_cast<std::byte*>(text.data()));
      }
      return bytes;
    };
    const auto fresh = begun(false), again = begun(true);
    ASSERT_EQ(fresh.size(), again.size());
    for (const auto& [name, bytes] : fresh) EXPECT_TRUE(bytes == again.at(name)) << name;
  }
}

TEST_F(PhasesRun, ABatchGrows) {
  const RunConfig run = config("ramp", {},
                               R"([{"until": 0.25, "batch": {"seq_len": 16, "tokens_per_step": 48}},
                                   {"until": 0.5, "batch": {"seq_len": 16, "tokens_per_step": 64,
                                                            "micro_batch_rows": 2}},
                                   {"until": 1}])");
  train_phases(1, run);
  EXPECT_EQ(state_of(checkpoint_path(run, 6)).cursor, 6 * 3);
  EXPECT_EQ(state_of(checkpoint_path(run, 12)).cursor, 6 * 3 + 6 * 4);
  const TrainState end = state_of(checkpoint_path(run, 24));
  EXPECT_EQ(end.cursor, 6 * 3 + 6 * 4 + 12 * 6);
  EXPECT_EQ(end.cursor, rows_of_steps(run, 24));
  EXPECT_EQ(end.tokens, total_tokens(run));
  const RunConfig part = config("part", {}, "[{\"until\": 1}]");
  EXPECT_EQ(rows_of_steps(part, 5), 5 * 6);
}

// --- program -------------------------------------------------------------------------------------

TEST_F(PhasesRun, TheProgramGoesThroughThem) {
  const RunConfig wanted = config("wanted", {}, kFp32Tail), run = config("run", {}, kFp32Tail);
  train_phases(1, wanted);
  std::ofstream(path() + "/run.json") << resolved_json(run);
  const CapturedLog log(spdlog::level::info);
  EXPECT_EQ(run_train({.config = path() + "/run.json", .overrides = {}, .resume = ""}),
            TrainEnd::kComplete);
  EXPECT_TRUE(tensors_at(run, kTinySteps) == tensors_at(wanted, kTinySteps));
  EXPECT_TRUE(
      log.has("phases: 1 to step 12: weights bf16, GEMMs bf16, m_plus_adam, 96 tokens a "
              "step; 2 to step 24: weights fp32, GEMMs fp32"))
      << log.text();
  EXPECT_TRUE(log.has("complete at step 24 of 24")) << log.text();
  const std::string metrics = posix_file_system().read_file(metrics_path(run));
  EXPECT_NE(metrics.find(R"({"event":"resume","step":12,"reason":"phase 2 begins"})"),
            std::string::npos)
      << metrics;
  EXPECT_EQ(records_of(run).size(), size_t(kTinySteps));
  EXPECT_TRUE(records_of(run).at(kBoundary).contains("val_loss")) << "the end of a phase";
  EXPECT_EQ(run_train({.config = path() + "/run.json", .overrides = {}, .resume = "auto"}),
            TrainEnd::kComplete);
}

// A run without phases may get some after its last step.
TEST_F(PhasesRun, AreAddedToARunThatResumes) {
  const RunConfig whole = config("whole", {}, kFp32Tail), plain = config("plain", {});
  train_phases(1, whole);
  train_phases(1, plain);
  const RunConfig added = config("added", {}, kFp32Tail);
  const CapturedLog log;
  train_phases(1, added, checkpoint_path(plain, kBoundary - 1));
  EXPECT_TRUE(log.has("keys of phases changed, first phases.0.")) << log.text();
  EXPECT_TRUE(tensors_at(added, kTinySteps) == tensors_at(whole, kTinySteps));
  const RunConfig late = config("late", {}, kFp32Tail);
  EXPECT_ERROR(train_phases(1, late, checkpoint_path(plain, kBoundary + 1)), "cannot be resumed",
               "precision.");
}

}  // namespace
}  // namespace mpt::test
