// The counted work of a step against the operations that a training step runs, by their ranges in a
// profile.
#include "plan/step_work.h"

#include <map>

#include <gtest/gtest.h>

#include "config/run_device.h"
#include "device/profiling.h"
#include "model/parameters.h"
#include "support/temp_directory.h"
#include "support/tiny_run.h"
#include "train/reports/gemm_rate.h"

namespace mpt::test {
namespace {

constexpr int64_t kSteps = 2, kMicroBatches = 2;

struct Ranges {
  std::map<std::string, int64_t> calls;  // in a micro-batch, by path below "step"
  std::map<std::string, double> flops;   // per token
};

// Excludes ranges that only group others, or belong to no gradients.
bool is_counted(const std::string& path) {
  for (const char* prefix : {"forward", "loss", "backward"})
    if (path.starts_with(std::string(prefix) + "/")) return true;
  return false;
}

class StepWorkTest : public testing::Test {
 protected:
  void SetUp() override { write_tiny_data(directory_.path()); }
  RunConfig config(std::vector<std::string> more) const {
    more.insert(more.end(), {"train.steps=2", "checkpoint.every_steps=2", "data.validation=[]",
                             "model.hidden_size=32", "model.intermediate_size=48",
                             "model.vocab_size=64", "device.threads=1"});
    return tiny_config(directory_.path(), "work", more);
  }
  static Ranges ranges_of(const RunConfig& run) {
    Profile profile;
    const std::unique_ptr<Device> device = make_device(run.device);
    ProfilingDevice profiling(*device, profile);
    train_on(profiling, run);
    Ranges ranges;
    std::vector<std::string> open;
    for (const Profile::Node& node : profile.nodes()) {
      open.resize(node.depth);
      open.emplace_back(node.name);
      std::string path;
      for (size_t i = 1; i < open.size(); ++i) path += (i > 1 ? "/" : "") + open[i];
      if (!is_counted(path)) continue;
      ranges.calls[path] += node.calls / (kSteps * kMicroBatches);
      if (node.flops > 0)
        ranges.flops[path] += node.flops / double(kSteps * run.batch.tokens_per_step);
    }
    return ranges;
  }

  TempDirectory directory_;
};

Ranges counted(const StepWork& work) {
  Ranges ranges;
  for (const PassWork& pass : work.passes) {
    EXPECT_GT(pass.bytes(), 0) << pass.operation;
    if (is_counted(pass.operation)) ranges.calls[pass.operation] += pass.calls;
  }
  const auto add = [&](const std::string& path, int64_t calls, double flops) {
    ranges.calls[path] += calls;
    ranges.flops[path] += flops;
  };
  for (const GemmWork& gemm : work.gemms) {
    const bool head = gemm.linear == "lm_head", forward = gemm.product == "y";
    add((head      ? "loss/GEMM "
         : forward ? "forward/GEMM "
                   : "backward/GEMM ") +
            gemm.product,
        gemm.calls, gemm.flops);
  }
  return ranges;
}

// Drops ranges of the profile that only contain others of the table, such as SwiGLU in FP8.
void drop_groups(Ranges& found, const Ranges& expected) {
  std::erase_if(found.calls, [&](const auto& entry) {
    const auto next = expected.calls.lower_bound(entry.first + "/");
    return !expected.calls.contains(entry.first) && next != expected.calls.end() &&
           next->first.starts_with(entry.first + "/") && next->second == entry.second;
  });
}

void expect_same_operations(const RunConfig& run, Ranges found) {
  const StepWork work = step_work(run.model, run.precision, run.batch.seq_len);
  Ranges expected = counted(work);
  expected.calls["forward/attention"] = expected.calls["backward/attention"] =
      run.model.num_hidden_layers;
  expected.flops["forward/attention"] = work.attention_forward;
  expected.flops["backward/attention"] = work.attention_backward;
  drop_groups(found, expected);
  EXPECT_EQ(found.calls, expected.calls);
  EXPECT_EQ(found.flops, expected.flops);
}

TEST_F(StepWorkTest, EveryOperationIsCounted) {
  for (const std::vector<std::string>& regime :
       {std::vector<std::string>{"precision.weights=fp32", "precision.compute=fp32"},
        {"precision.weights=bf16", "precision.compute=bf16"},
        {"precision.weights=block_fp8", "precision.compute=fp8"},
        {"precision.weights=block_fp8", "precision.compute=fp8", "precision.fp8_recipe=current"},
        {"precision.weights=nvfp4", "precision.compute=fp8", "precision.fp8_lm_head=true"}}) {
    SCOPED_TRACE(regime.front());
    for (const RunConfig& run : {config(regime), config(with_family(regime))})
      expect_same_operations(run, ranges_of(run));
  }
}

double layer_bytes(const StepWork& work, const LlamaConfig& config) {
  double bytes = 0;
  for (const PassWork& pass : work.passes)
    if (pass.calls >= config.num_hidden_layers) bytes += pass.bytes();
  return bytes / double(config.num_hidden_layers);
}

// The sums, by hand from the operations of a block (docs/benchmarks/gpu.md, "Bytes of a layer"): in
// BF16 the norms read and write 16 C, RoPE 8 C and SwiGLU 6 F forward, and 16 C, 8 C and 10 F
// backward. The very first norm, which has no branch to add and no linear layer before it, is
// listed separately and not among those of layers.
TEST(StepWork, BytesOfALayer) {
  LlamaConfig config{.hidden_size = 1024,
                     .intermediate_size = 2736,
                     .num_hidden_layers = 24,
                     .num_attention_heads = 16,
                     .vocab_size = 32000};
  const double c = 1024, f = 2736;
  const StepWork bf16 = step_work(config, {}, 1024);
  EXPECT_DOUBLE_EQ(layer_bytes(bf16, config), 48 * c + 16 * f - (8 + 8) * c / 24);
  PrecisionConfig fp8{.weights = WeightFormat::kBlockFp8, .compute = ComputeFormat::kFp8};
  EXPECT_DOUBLE_EQ(layer_bytes(step_work(config, fp8, 1024), config),
                   60 * c + 16 * f - (8 + 10) * c / 24);
  // Separate casts, which read every source once more.
  fp8.fp8_recipe = Fp8Recipe::kCurrent;
  EXPECT_DOUBLE_EQ(layer_bytes(step_work(config, fp8, 1024), config),
                   (76 + 16) * c + (24 + 8) * f - (12 + 8) * c / 24);
}

TEST(StepWork, AgreesWithTheFlopsOfATokenButForTheDiagonalAndAttentionsBackward) {
  LlamaConfig config{.hidden_size = 64,
                     .intermediate_size = 160,
                     .num_hidden_layers = 3,
                     .num_attention_heads = 4,
                     .vocab_size = 320};
  const int64_t seq_len = 128;
  const StepWork work = step_work(config, {}, seq_len);
  double gemms = 0;
  for (const GemmWork& gemm : work.gemms) gemms += gemm.flops;
  const double attention = 6.0 * 3 * 64 * double(seq_len);
  EXPECT_EQ(gemms + attention, flops_per_token(config, seq_len));
  EXPECT_EQ(work.attention_forward, attention / 3 * (seq_len + 1) / seq_len);
  EXPECT_EQ(work.attention_backward, 2.5 * work.attention_forward);
}

TEST(StepWork, GroupedQueriesTakeLess) {
  LlamaConfig config{.hidden_size = 64,
                     .intermediate_size = 160,
                     .num_hidden_layers = 3,
                     .num_attention_heads = 4,
                     .num_key_value_heads = 2,
                     .head_size = 32,
                     .vocab_size = 320};
  const StepWork work = step_work(config, {}, 128);
  double gemms = 0;
  for (const GemmWork& gemm : work.gemms) gemms += gemm.flops;
  EXPECT_EQ(gemms, 6.0 * (3 * (64 * 128 * 2 + 64 * 64 * 2 + 3 * 64 * 160) + 64 * 320));
  EXPECT_EQ(work.attention_forward, 2.0 * 2 * 128 * 129 / 2 * 3);
}

TEST(StepWork, CastsOfWeightsReadWhatIsStored) {
  LlamaConfig config{.hidden_size = 64,
                     .intermediate_size = 160,
                     .num_hidden_layers = 2,
                     .num_attention_heads = 4,
                     .vocab_size = 320};
  const double elements = 2 * (4 * 64 * 64 + 3 * 64 * 160);
  const WeightPass none = step_work(config, {}, 16).weights;
  EXPECT_EQ(none.read + none.written + none.transposed, 0);
  const WeightPass nvfp4 =
      step_work(config, {.weights = WeightFormat::kNvfp4, .compute = ComputeFormat::kFp8}, 16)
          .weights;
  EXPECT_EQ(nvfp4.read, elements * (0.5 + 1.0 / 16));
  EXPECT_EQ(nvfp4.written, elements);
  EXPECT_EQ(nvfp4.transposed, elements);
  EXPECT_FALSE(nvfp4.each_micro_batch);
  const WeightPass decoded =
      step_work(config, {.weights = WeightFormat::kNvfp4, .compute = ComputeFormat::kBF16}, 16)
          .weights;
  EXPECT_EQ(decoded.read, nvfp4.read);
  EXPECT_EQ(decoded.written, 2 * elements);
}

}  // namespace
}  // namespace mpt::test
