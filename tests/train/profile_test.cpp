// Profile scopes of a training step: timing changes no result, and the report is right.
#include <map>

#include <gtest/gtest.h>

#include "config/run_device.h"
#include "device/profiling.h"
#include "model/parameters.h"
#include "support/temp_directory.h"
#include "support/tiny_run.h"
#include "train/reports/profile_table.h"

namespace mpt::test {
namespace {

class ProfiledTraining : public testing::Test {
 protected:
  void SetUp() override { write_tiny_data(directory_.path()); }
  RunConfig config(const std::string& name, std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"train.steps=4", "checkpoint.every_steps=4", "data.validation=[]",
                             "device.threads=1"});
    return tiny_config(directory_.path(), name, more);
  }
  Profile profiled(const RunConfig& config) const {
    Profile profile;
    const std::unique_ptr<Device> device = make_device(config.device);
    ProfilingDevice profiling(*device, profile);
    train_on(profiling, config);
    return profile;
  }

  TempDirectory directory_;
};

TEST_F(ProfiledTraining, ChangesNoBits) {
  for (const std::vector<std::string>& regime :
       {std::vector<std::string>{"precision.weights=fp32", "precision.compute=fp32"},
        {"precision.weights=nvfp4", "precision.compute=fp8", "train.activation_recompute=block"}}) {
    const std::string name = regime.front().substr(regime.front().find('=') + 1);
    const RunConfig plain = config(name, regime), measured = config(name + "_profiled", regime);
    train(plain);
    EXPECT_FALSE(profiled(measured).nodes().empty());
    EXPECT_EQ(metrics_of(plain), metrics_of(measured)) << name;
    EXPECT_TRUE(tensors_at(plain, 4) == tensors_at(measured, 4)) << name;
  }
}

// 2 layers, 2 micro-batches, 4 steps; the logits of a micro-batch are one chunk. A step takes its
// data and waits for those of the next.
TEST_F(ProfiledTraining, EveryOperationIsARange) {
  const RunConfig run = config("ranges");
  std::map<std::string, int64_t> calls;
  double product_flops = 0, attention_flops = 0, outside = 0, all = 0;
  std::string within;
  for (const Profile::Node& node : profiled(run).nodes()) {
    if (node.depth <= 1) within = node.name;
    const std::string path = node.depth <= 1 ? within : within + "/" + std::string(node.name);
    calls[path] += node.calls;
    (node.name == "attention" ? attention_flops : product_flops) += node.flops;
    all += node.self_seconds;
    if (node.depth == 0 && node.name != "step") outside += node.seconds;
  }
  const std::map<std::string, int64_t> expected{{"step", 4},
                                                {"data", 7},
                                                {"preparation", 8},
                                                {"forward", 8},
                                                {"forward/embedding", 8},
                                                {"forward/RMSNorm", 40},
                                                {"forward/GEMM y", 64},
                                                {"forward/RoPE", 16},
                                                {"forward/attention", 16},
                                                {"forward/SwiGLU", 16},
                                                {"loss", 8},
                                                {"loss/GEMM y", 8},
                                                {"loss/cross entropy", 8},
                                                {"loss/GEMM dW", 8},
                                                {"loss/GEMM dx", 8},
                                                {"backward", 8},
                                                {"backward/RMSNorm", 40},
                                                {"backward/GEMM dW", 64},
                                                {"backward/GEMM dx", 64},
                                                {"backward/SwiGLU", 16},
                                                {"backward/attention", 16},
                                                {"backward/RoPE", 16},
                                                {"backward/embedding", 8},
                                                {"rounding of gradients", 4},
                                                {"gradient norm", 4},
                                                {"update", 4},
                                                {"new weights", 4}};
  EXPECT_EQ(calls, expected);
  EXPECT_EQ(outside, 0) << "of " << all << " s";
  const int64_t c = run.model.hidden_size, layers = run.model.num_hidden_layers,
                weights = layers * (4 * c * c + 3 * c * padded_intermediate_size(run.model)) +
                          run.model.vocab_size * c;
  const double tokens = 4.0 * double(run.batch.tokens_per_step),
               pairs = double(run.batch.seq_len + 1) / 2;
  EXPECT_EQ(product_flops, 6 * double(weights) * tokens);
  EXPECT_EQ(attention_flops, 7 * 2 * double(layers * c) * pairs * tokens);
}

// --- table ---------------------------------------------------------------------------------------

TEST(ProfileTable, HasARowForEachNode) {
  double now = 0;
  Profile profile([&now] { return now; });
  for (int step = 0; step < 2; ++step) {
    profile.begin("step");
    now += 0.001;
    for (int i = 0; i < 3; ++i) {
      profile.begin("GEMM y", 2e6);
      now += 0.001;
      profile.end();
    }
    profile.end();
  }
  const std::string table = profile_table(profile, {.steps = 2, .gemm_rate = 8e9});
  EXPECT_EQ(
      table,
      "operation                        calls         ms    self ms  self %    GFLOP/s  % of rate\n"
      "step                                 1      4.000      1.000   25.00\n"
      "  GEMM y                             3      3.000      3.000   75.00        2.0       25.0\n"
      "mean of 2 steps; self %: share of the 4.000 ms of a step; rate: 8.0 GFLOP/s, measured with "
      "large GEMMs\n");
}

}  // namespace
}  // namespace mpt::test
