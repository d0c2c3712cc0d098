// Whole runs on the CUDA backend: they track the CPU, repeat and resume bit for bit, and a step
// allocates nothing and waits at most once.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "config/run_data.h"
#include "config/run_device.h"
#include "config/run_paths.h"
#include "cuda/gpu.h"
#include "device/cuda/cuda_attention.h"
#include "device/profiling.h"
#include "support/temp_directory.h"
#include "support/tiny_run.h"
#include "train/incidents/spike_guard.h"
#include "train/reports/run_report.h"
#include "train/resources/memory_fit.h"
#include "train/step/training_model.h"

namespace mpt::test {
namespace {

using Overrides = std::vector<std::string>;

struct Regime {
  std::string name;
  Overrides overrides;
};
void PrintTo(const Regime& regime, std::ostream* out) { *out << regime.name; }

// Pairs of formats, and every kind of rounding and decision that uses a different path on the
// device.
const std::vector<Regime> kRegimes{
    {"fp32", {"precision.weights=fp32", "precision.compute=fp32"}},
    {"bf16", {}},
    {"bf16_adamw", {"optimizer.rule=adamw", "optimizer.lr_multiplicative=null"}},
    {"bf16_stochastic", {"optimizer.weight_rounding=stochastic"}},
    {"bf16_kahan", {"optimizer.weight_rounding=kahan"}},
    {"bf16_muon", {"optimizer.rule=muon", "optimizer.lr_multiplicative=null"}},
    {"bf16_remainder", {"optimizer.weight_rounding=remainder"}},
    {"bf16_ulp_residual", {"optimizer.weight_rounding=ulp_residual"}},
    {"bf16_fed_back", {"optimizer.error_feedback=momentum"}},
    {"nvfp4_master", {"optimizer.weight_rounding=master", "precision.weights=nvfp4"}},
    {"bf16_apollo_e",
     {"optimizer.apollo_e=channel", "optimizer.apollo_e_rank=3", "optimizer.apollo_e_gap=2"}},
    {"bf16_fp8", {"precision.compute=fp8", "precision.fp8_history=3"}},
    {"fp8_fp8",
     {"precision.weights=block_fp8", "precision.compute=fp8", "precision.fp8_history=3"}},
    {"fp8_fp8_current",
     {"precision.weights=block_fp8", "precision.compute=fp8", "precision.fp8_recipe=current",
      "precision.fp8_weight_recast=microbatch", "train.activation_recompute=block"}},
    {"nvfp4_fp8", {"precision.weights=nvfp4", "precision.compute=fp8", "precision.fp8_history=3"}},
    {"nvfp4_live_fp8",
     {"precision.weights=nvfp4", "precision.nvfp4_scale_mode=live", "precision.compute=fp8",
      "precision.fp8_history=3", "precision.fp8_lm_head=true", "model.vocab_size=64"}},
    {"bf16_z_loss", {"train.z_loss=0.05"}},
    {"nvfp4_ema", {"precision.weights=nvfp4", "train.ema_decay=0.9"}},
    {"bf16_family", with_family({})},
    {"fp32_documents",
     {"precision.weights=fp32", "precision.compute=fp32", "data.attention=document"}},
    {"bf16_fp8_documents",
     {"precision.compute=fp8", "precision.fp8_history=3", "data.attention=document",
      "data.packing=best_fit"}},
    {"fp8_family",
     with_family({"precision.weights=block_fp8", "precision.compute=fp8", "precision.fp8_history=3",
                  "precision.fp8_lm_head=true", "model.vocab_size=64"})},
};

class CudaTraining : public GpuTest, public testing::WithParamInterface<Regime> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    write_tiny_data(directory_.path());
  }
  // Steps are saved only at the end, and nothing is evaluated, unless requested. FP8 GEMMs need a
  // multiple of 16 tokens: a micro-batch has three rows of 16.
  RunConfig config(const std::string& name, const Overrides& more = {}) const {
    return config_of(name, is_parameterized() ? GetParam().overrides : Overrides{}, more);
  }
  // The same on the CPU, with GEMMs in FP32.
  RunConfig exact_config(const std::string& name, Overrides more) const {
    Overrides regime = GetParam().overrides;
    std::erase_if(regime, [](const std::string& key) { return key.starts_with("precision.fp8_"); });
    more.insert(more.end(), {"device.type=cpu", "precision.compute=fp32"});
    return config_of(name, regime, more);
  }
  std::vector<double> losses(const RunConfig& config) const {
    std::vector<double> all;
    for (auto& [step, record] : read_metrics(posix_file_system(), metrics_path(config)))
      all.push_back(record.at("loss").get<double>());
    return all;
  }
  std::vector<double> trained(const RunConfig& config) const {
    train(config);
    return losses(config);
  }

 private:
  static bool is_parameterized() {
    return testing::UnitTest::GetInstance()->current_test_info()->value_param() != nullptr;
  }
  RunConfig config_of(const std::string& name, const Overrides& regime,
                      const Overrides& more) const {
    Overrides all{"device.type=cuda",
                  "device.autotune_gemms=false",
                  "device.cuda_attention=gemms",
                  "train.steps=4",
                  "checkpoint.every_steps=2",
                  "eval.every_steps=0",
                  "optimizer.lr_additive=5e-3",
                  "optimizer.lr_multiplicative=5e-3"};
    all.insert(all.end(), regime.begin(), regime.end());
    all.insert(all.end(), more.begin(), more.end());
    return tiny_config(directory_.path(), name, all);
  }
  TempDirectory directory_;
};

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(a[i] - b[i]));
  return most;
}

// The backends differ by the order of sums and by intermediate rounding in attention. Each differs
// from GEMMs in FP32 by the effect of rounding to the compute format on a loss curve, which the CPU
// run shows; so they differ from one another by about twice that, and by more only through bad luck
// of one run.
TEST_P(CudaTraining, FollowsTheCpu) {
  const auto with = [&](Overrides more) {
    more.insert(more.end(), {"train.steps=8", "checkpoint.every_steps=0"});
    return more;
  };
  const std::vector<double> gpu = trained(config("gpu", with({})));
  const std::vector<double> cpu = trained(config("cpu", with({"device.type=cpu"})));
  const std::vector<double> exact = trained(exact_config("exact", with({})));
  ASSERT_EQ(gpu.size(), 8u);
  ASSERT_EQ(cpu.size(), 8u);
  // The first loss precedes every update: sums of at most a few hundred terms, each operand rounded
  // to BF16.
  EXPECT_NEAR(gpu[0], cpu[0], 0x1p-8 * cpu[0]);
  const double rounding = largest_difference(cpu, exact);
  EXPECT_LE(largest_difference(gpu, cpu), std::max(4 * rounding, 1e-5 * cpu[0]))
      << "rounding: " << rounding;
  EXPECT_LT(gpu.back(), gpu.front());
}

#ifndef MPT_FAKE_CUDA  // where DependsOnNoOrder says more
TEST_P(CudaTraining, RepeatsBitForBit) {
  const RunConfig once = config("once"), again = config("again");
  train(once);
  train(again);
  EXPECT_TRUE(tensors_at(once, 4) == tensors_at(again, 4));
  EXPECT_EQ(losses(once), losses(again));
}

#endif

TEST_P(CudaTraining, ContinuesBitForBit) {
  const Overrides evaluated{"eval.every_steps=1"};
  const RunConfig whole = config("whole", evaluated), part = config("part", evaluated);
  train(whole);
  train(part, checkpoint_path(whole, 2));
  EXPECT_TRUE(tensors_at(part, 4) == tensors_at(whole, 4));
  EXPECT_TRUE(metrics_of(whole).ends_with(metrics_of(part)));
}

// A step whose ranges are timed is waited for in the middle, and not recorded.
TEST_P(CudaTraining, ProfilingChangesNoBits) {
  const RunConfig plain = config("plain"), measured = config("measured");
  train(plain);
  const std::unique_ptr<Device> device = make_device(measured.device);
  Profile profile;
  ProfilingDevice profiling(*device, profile);
  train_on(profiling, measured);
  EXPECT_TRUE(tensors_at(plain, 4) == tensors_at(measured, 4));
  EXPECT_EQ(losses(plain), losses(measured));
  const std::vector<Profile::Node> nodes = profile.nodes();
  const auto step = std::ranges::find(nodes, std::string_view("step"), &Profile::Node::name);
  ASSERT_NE(step, nodes.end());
  EXPECT_EQ(step->depth, 0u);
  EXPECT_EQ(step->calls, 4);
}

// Every step repeats the recording: no value of a single step is frozen in it.
TEST_P(CudaTraining, ReplaysWhatItWouldEnqueue) {
  const Overrides steps{"train.steps=4", "schedule.warmup_steps=3"};
  Overrides eager = steps;
  eager.emplace_back("device.cuda_graph=false");
  const RunConfig replayed = config("replayed", steps), enqueued = config("enqueued", eager);
  train(replayed);
  train(enqueued);
  EXPECT_TRUE(tensors_at(replayed, 4) == tensors_at(enqueued, 4));
  EXPECT_EQ(losses(replayed), losses(enqueued));
}

std::vector<Regime> regimes_in_fp8() {
  std::vector<Regime> all = kRegimes;
  std::erase_if(all, [](const Regime& r) { return r.name.find("fp8") == std::string::npos; });
  return all;
}

class CudaFp8Training : public CudaTraining {};

// Codes of weights are the same whether kept or recomputed, even if they are replayed and
// evaluation uses their memory in between.
TEST_P(CudaFp8Training, CodesOfOneLayerChangeNoBits) {
  const auto with = [&](const std::string& name, const std::string& codes) {
    return config(name, {"device.fp8_weight_codes=" + codes, "eval.every_steps=1"});
  };
  const RunConfig again = with("again", "one_layer"), kept = with("kept", "all_layers"),
                  continued = with("continued", "one_layer");
  train(again);
  train(kept);
  train(continued, checkpoint_path(kept, 2));
  EXPECT_TRUE(tensors_at(again, 4) == tensors_at(kept, 4));
  EXPECT_TRUE(tensors_at(continued, 4) == tensors_at(kept, 4));
  EXPECT_EQ(losses(again), losses(kept));
}

INSTANTIATE_TEST_SUITE_P(Regimes, CudaFp8Training, testing::ValuesIn(regimes_in_fp8()),
                         [](const auto& instance) { return instance.param.name; });

INSTANTIATE_TEST_SUITE_P(Regimes, CudaTraining, testing::ValuesIn(kRegimes),
                         [](const auto& instance) { return instance.param.name; });

using CudaRun = CudaTraining;

// Weights and the copies that GEMMs read, in bytes per parameter; model/llama_fp8_memory_test.cpp
// derives them. BF16 GEMMs read BF16 weights as stored, padded by 0.002.
TEST_F(CudaRun, PlansLessForLowerPrecision) {
  const struct {
    const char* config;
    double most;
  } cases[] = {{"1b_bf16", 2.003}, {"1b_bf16_fp8", 2.1}, {"1b_fp8", 1.3}, {"1b_nvfp4", 0.9}};
  for (const auto& c : cases) {
    const RunConfig run =
        load_run_config((source_directory() / "configs" / c.config).string() + ".json",
                        {"device.type=cuda", "device.autotune_gemms=false",
                         "device.cuda_attention=gemms", "batch.micro_batch_rows=1"});
    const MemoryUse use = planned_memory(run, *make_planning_device(run.device));
    const int64_t read = use.of(kWeightMemory) + use.of(kComputeWeightMemory);
    EXPECT_LE(double(read), c.most * double(parameter_count(run.model))) << c.config;
  }
}

// The update is dropped on the device, and counted as on the CPU.
TEST_F(CudaRun, SkipsStepsThatAreNotFinite) {
  const Overrides exploding{"optimizer.lr_additive=1e30",
                            "train.nonfinite_policy=skip_step",
                            "train.steps=6",
                            "checkpoint.every_steps=1",
                            "optimizer.rule=adamw",
                            "optimizer.lr_multiplicative=null"};
  Overrides on_cpu = exploding;
  on_cpu.emplace_back("device.type=cpu");
  const RunConfig gpu = config("gpu", exploding), cpu = config("cpu", on_cpu);
  train(gpu);
  train(cpu);
  const auto skipped = [](const RunConfig& run) {
    std::vector<int64_t> steps;
    for (auto& [step, record] : read_metrics(posix_file_system(), metrics_path(run)))
      if (record.value("skipped", false)) steps.push_back(step);
    return steps;
  };
  const std::vector<int64_t> left_out = skipped(gpu);
  EXPECT_EQ(left_out, skipped(cpu));
  ASSERT_FALSE(left_out.empty());
  ASSERT_EQ(left_out.back(), 6);  // saved at the run's end; nothing is saved within a row of them
  EXPECT_TRUE(tensors_at(gpu, 6) == tensors_at(gpu, left_out.front() - 1));
}

// The device drops exactly the updates that the host finds to be spikes.
TEST_F(CudaRun, LeavesOutSpikes) {
  const RunConfig run =
      config("spikes", {"train.spike_policy=skip_step", "train.spike_window=2", "train.spike_z=0.5",
                        "train.steps=12", "checkpoint.every_steps=1"});
  train(run);
  SpikeGuard guard(run.train);
  int64_t left_out = 0, made = 0;
  for (const auto& [step, record] : read_metrics(posix_file_system(), metrics_path(run))) {
    const double loss = record.at("loss"), norm = record.at("grad_norm");
    const bool spike = guard.stands_out(loss, norm);
    EXPECT_EQ(record.value("skipped", false), spike) << step;
    EXPECT_EQ(tensors_at(run, step) == (step == 1 ? "" : tensors_at(run, step - 1)), spike) << step;
    ++(spike ? left_out : made);
    guard.see(loss, norm);
  }
  EXPECT_GT(left_out, 0);
  EXPECT_GT(made, 2);
}

TEST_F(CudaRun, CountsWhatRoundingLeftOfUpdates) {
  const Overrides counted{"log.update_statistics=2", "precision.weights=block_fp8",
                          "precision.compute=fp8"};
  const RunConfig with = config("with", counted),
                  without =
                      config("without", {"precision.weights=block_fp8", "precision.compute=fp8"});
  train(with);
  train(without);
  EXPECT_TRUE(tensors_at(with, 4) == tensors_at(without, 4));
  const auto metrics = read_metrics(posix_file_system(), metrics_path(with));
  EXPECT_TRUE(metrics.at(2).contains("update_survival"));
  EXPECT_FALSE(metrics.at(3).contains("update_survival"));
}

// In the start lines, the plan and the metrics; a CPU has only one attention, so nothing is logged.
TEST_F(CudaRun, SaysWhichAttentionItUses) {
  const RunConfig gpu = config("gpu"), cpu = config("cpu", {"device.type=cpu"});
  for (const RunConfig& run : {gpu, cpu}) {
    train(run);
    const bool said = run.device.type == DeviceType::kCuda;
    const std::unique_ptr<Device> device = make_device(run.device);
    const auto data = open_training_data(run);
    const RunStart start{.config = "", .place = "", .training = *data, .validation = {}};
    EXPECT_EQ(
        start_lines(run, *device, start).back().ends_with("; attention by GEMMs (as configured)"),
        said);
    EXPECT_EQ(device_report(run, *device).find("GEMMs (as configured)") != std::string::npos, said);
    for (const auto& [step, record] : read_metrics(posix_file_system(), metrics_path(run)))
      EXPECT_EQ(record.value("attention", "nothing"), said ? "GEMMs (as configured)" : "nothing");
  }
}

TEST_F(CudaRun, DocumentsTakeCudnnToo) {
  const RunConfig run =
      config("documents", {"device.cuda_attention=auto", "data.attention=document"});
  const std::string said = attention_in_use(run, *make_planning_device(run.device));
  if (has_cudnn_attention()) {
    EXPECT_TRUE(said.starts_with("cuDNN 9.")) << said;
  } else {
    EXPECT_EQ(said, "GEMMs (this build has no cuDNN attention)");
  }
}

#ifdef MPT_FAKE_CUDA

// Takes as many as leave the head-room of the free memory, and then allocates no more than planned.
TEST_F(CudaRun, TakesTheRowsThatFitItsFreeMemory) {
  const RunConfig run =
      config("rows", {"batch.seq_len=64", "batch.tokens_per_step=384", "batch.micro_batch_rows=0"});
  const std::unique_ptr<Device> device = make_device(run.device);
  const int64_t before = fake_cuda::counters().live_bytes;
  for (const int64_t rows : {3, 2, 6, 1}) {
    const int64_t planned = planned_memory(with_micro_batch(run, rows), *device).total();
    fake_cuda::set_device_bytes(before + planned + (int64_t{1} << 30));
    const ChosenRows chosen =
        choose_rows(run, *device, Communicator::single(), free_memory(*device));
    EXPECT_EQ(chosen.config.batch.micro_batch_rows, rows);
    Trainer trainer(chosen.config, *device, posix_file_system());
    trainer.initialize();
    fake_cuda::reset_counters();
    trainer.run_unrecorded(1);
    EXPECT_LE(fake_cuda::counters().peak_bytes - before, planned);
  }
  fake_cuda::set_device_bytes(int64_t{4} << 30);
}

// Threads in any order, and work as late as the host allows it: a dependence on either is a race.
TEST_P(CudaTraining, DependsOnNoOrder) {
  const RunConfig once = config("once"), again = config("again");
  train(once);
  fake_cuda::set_order(fake_cuda::Order::kBackward);
  fake_cuda::set_execution(fake_cuda::Execution::kLate);
  train(again);
  EXPECT_TRUE(tensors_at(once, 4) == tensors_at(again, 4));
  EXPECT_EQ(losses(once), losses(again));
}

// From the third step on, which is the first replayed one.
TEST_F(CudaRun, AStepNeitherAllocatesNorWaitsMoreThanOnce) {
  const auto counted = [&](int64_t steps) {
    const RunConfig run = config(fmt::format("steps{}", steps),
                                 {fmt::format("train.steps={}", steps), "checkpoint.every_steps=0",
                                  "schedule.warmup_steps=1"});
    fake_cuda::reset_counters();
    train(run);
    return fake_cuda::counters();
  };
  const fake_cuda::Counters few = counted(3), more = counted(8);
  EXPECT_EQ(more.allocations, few.allocations);
  EXPECT_EQ(more.synchronisations - few.synchronisations, 5);
  EXPECT_EQ(more.graph_launches - few.graph_launches, 5);
  EXPECT_EQ(more.captures, few.captures);
}

// Control for ReplaysWhatItWouldEnqueue.
TEST_F(CudaRun, WithoutGraphsNothingIsRecorded) {
  const auto counted = [&](const std::string& graphs) {
    fake_cuda::reset_counters();
    train(config("graphs_" + graphs, {"device.cuda_graph=" + graphs}));
    return fake_cuda::counters();
  };
  const fake_cuda::Counters with = counted("true"), without = counted("false");
  EXPECT_GT(with.captures, 0);
  EXPECT_GT(with.graph_launches, 0);
  EXPECT_EQ(without.captures, 0);
  EXPECT_EQ(without.graph_launches, 0);
  EXPECT_EQ(without.gemms, with.gemms);
}

#endif

}  // namespace
}  // namespace mpt::test
