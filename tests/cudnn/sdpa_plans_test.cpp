// cuDNN itself accepts the project's attention graphs, for GPUs described to it: every shipped
// size, odd lengths, both head sizes. That shows that a plan exists and its workspace; not that its
// kernel computes correctly, which needs the GPU.
#include <gtest/gtest.h>

#ifdef MPT_WITH_CUDNN

#include <string>
#include <vector>

#include <cudnn.h>
#include <fmt/format.h>

#include "config/run_config.h"
#include "device/cuda/attention_workspace.h"
#include "device/cuda/cuda_attention.h"
#include "support/described_gpus.h"

extern "C" int driver_stub_is_loaded();

namespace mpt {
namespace {

constexpr auto kOn = DeterministicAttention::kOn, kOff = DeterministicAttention::kOff;
// The version whose workspaces are in device/cuda/attention_workspace.h.
constexpr size_t kVersion = 91900;

// Returns a configuration's micro-batches.
AttentionShape shape_of(const std::string& config, std::vector<std::string> overrides = {}) {
  overrides.emplace_back("device.type=cpu");  // needs no GPU
  const RunConfig run =
      load_run_config(fmt::format("{}/configs/{}.json", MPT_SOURCE_DIR, config), overrides);
  return {.batch = run.batch.rows_per_micro_batch(),
          .seq_len = run.batch.seq_len,
          .heads = run.model.num_attention_heads,
          .key_value_heads = run.model.key_value_heads(),
          .head_dim = run.model.head_dim()};
}

std::vector<AttentionShape> shipped_shapes() {
  std::vector<AttentionShape> shapes;
  for (const char* size : {"60m", "130m", "350m", "1b"})
    shapes.push_back(shape_of(fmt::format("{}_bf16", size)));
  // Rows as in configs/base/family.json.
  shapes.push_back(shape_of("60m_bf16", {"batch.seq_len=256", "batch.micro_batch_rows=32"}));
  for (const char* size : {"nano", "pico"})
    shapes.push_back(shape_of(fmt::format("{}_bf16", size)));
  return shapes;
}

// The largest micro-batch in groups, ends within tiles, and heads of 128.
const std::vector<AttentionShape> kOtherShapes{{128, 1024, 16, 16, 64},
                                               {2, 2, 2, 2, 64},
                                               {3, 129, 2, 2, 64},
                                               {3, 256, 2, 2, 128},
                                               {2, 1000, 4, 4, 128}};
// SmolLM2-135M, Llama-3.2-1B and 3B, one key head, and as many query heads as three.
const std::vector<AttentionShape> kGroupedQueries{{4, 2048, 9, 3, 64},
                                                  {2, 4096, 32, 8, 64},
                                                  {2, 1024, 24, 8, 128},
                                                  {3, 129, 4, 1, 64},
                                                  {2, 1000, 6, 2, 128}};
const std::vector<AttentionShape> kNotDeterministic{
    {4, 1024, 16, 16, 64}, {3, 129, 2, 2, 64}, {2, 1000, 4, 4, 128}, {2, 1000, 8, 2, 64}};

// Within documents: a whole model's, ends within tiles and within stores, grouped queries.
const std::vector<AttentionShape> kDocuments{
    {4, 1024, 16, 16, 64, AttentionScope::kDocument},
    {3, 129, 4, 1, 64, AttentionScope::kDocument},
    {2, 1000, 6, 2, 128, AttentionScope::kDocument},
};
// cuDNN 9.19 has no deterministic plan for them on Blackwell; 9.26 does.
constexpr size_t kFirstOnBlackwell = 92600;

std::string text_of(const SdpaKey& key) {
  return fmt::format("{}{}: {} sequences of {} tokens, {} heads of {}",
                     key.pass == AttentionPass::kForward ? "forward" : "backward",
                     key.deterministic == kOn ? "" : ", not deterministic", key.batch, key.seq_len,
                     key.heads, key.head_dim) +
         fmt::format(", {} of keys, {}s", key.key_value_heads, name_of(key.scope));
}

AttentionShape shape_of(const SdpaKey& key, int64_t tokens) {
  return {.batch = key.batch,
          .seq_len = tokens,
          .heads = key.heads,
          .key_value_heads = key.key_value_heads,
          .head_dim = key.head_dim};
}

class SdpaPlans : public testing::TestWithParam<test::PublishedGpu> {
 protected:
  void SetUp() override {
    ASSERT_EQ(driver_stub_is_loaded(), 1);
    if (cudnnGetVersion() < kVersion)
      GTEST_SKIP() << "cuDNN " << cudnnGetVersion() << " is older than " << kVersion
                   << ", with which plans and workspaces were looked at";
  }

  static void expect_plan(const SdpaKey& key) {
    SdpaGraph graph(key);
    const auto objection = graph.build(test::described(GetParam()));
    ASSERT_FALSE(objection) << text_of(key) << ": " << *objection;
    EXPECT_FALSE(graph.plan_name().empty());
    if (key.pass == AttentionPass::kForward)
      EXPECT_LE(graph.workspace_bytes(), 256) << text_of(key);
    else
      expect_workspace(key, graph.workspace_bytes());
  }
  static void expect_workspace(const SdpaKey& key, int64_t bytes) {
    const int64_t estimate = attention_workspace(shape_of(key, key.seq_len), key.deterministic);
    if (GetParam().capability < 90 && key.deterministic == kOff) {
      // Twice dQ, with whole tiles of tokens.
      const int64_t tokens = align_up(key.seq_len, kAttentionQueryTile);
      EXPECT_LE(bytes, 2 * attention_workspace(shape_of(key, tokens), kOff)) << text_of(key);
      return;
    }
    EXPECT_LE(bytes, estimate) << text_of(key);
    // Another version may need less, and a plan less than it states.
    if (GetParam().capability == 90 && cudnnGetVersion() / 100 == kVersion / 100) {
      EXPECT_EQ(bytes, estimate) << text_of(key);
    }
  }
  static void expect_plans(const std::vector<AttentionShape>& shapes,
                           DeterministicAttention deterministic) {
    for (const AttentionShape& shape : shapes) {
      ASSERT_EQ(CudnnAttention(nullptr).objection(shape, DType::kBF16), std::nullopt);
      for (const SdpaKey& key : CudnnAttention::keys_for(shape, deterministic)) expect_plan(key);
    }
  }
};

TEST_P(SdpaPlans, ForEveryShippedSize) { expect_plans(shipped_shapes(), kOn); }
TEST_P(SdpaPlans, ForOddLengthsAndLargeHeads) { expect_plans(kOtherShapes, kOn); }
TEST_P(SdpaPlans, ForGroupedQueries) { expect_plans(kGroupedQueries, kOn); }
TEST_P(SdpaPlans, NotDeterministic) {
  for (const AttentionShape& shape : kNotDeterministic)
    expect_plan(backward_key(shape, shape.batch, kOff));
}

TEST_P(SdpaPlans, WithinDocuments) {
  const bool deterministic = GetParam().capability < 100 || cudnnGetVersion() >= kFirstOnBlackwell;
  if (deterministic) expect_plans(kDocuments, kOn);
  for (const AttentionShape& shape : kDocuments) {
    expect_plan(forward_key(shape, shape.batch));
    expect_plan(backward_key(shape, shape.batch, kOff));
  }
}

// The only length that cuDNN refuses, in backward: attention then uses GEMMs, which a plan without
// a GPU knows too.
TEST_P(SdpaPlans, NoneForOneToken) {
  const AttentionShape shape{
      .batch = 2, .seq_len = 1, .heads = 2, .key_value_heads = 2, .head_dim = 64};
  SdpaGraph backward(backward_key(shape, 2, kOn));
  EXPECT_TRUE(backward.build(test::described(GetParam())));
  EXPECT_EQ(CudnnAttention(nullptr).objection(shape, DType::kBF16),
            "the backward pass needs more than one token");
}

// A group that begins within the statistics must begin at a multiple of 16 bytes.
TEST(SdpaGroups, BeginWhereCudnnExpectsIt) {
  const AttentionShape odd{
      .batch = 1024, .seq_len = 1023, .heads = 9, .key_value_heads = 9, .head_dim = 64};
  ASSERT_GT(attention_groups(odd, kOn).count, 1);
  AttentionShape one = odd, even = odd;
  one.batch = 1;
  even.heads = even.key_value_heads = 8;
  EXPECT_EQ(CudnnAttention(nullptr).objection(odd, DType::kBF16),
            "several groups of sequences need heads times tokens to be a multiple of 4, not 9 x "
            "1023");
  for (const AttentionShape& shape : {one, even})
    EXPECT_EQ(CudnnAttention(nullptr).objection(shape, DType::kBF16), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(On, SdpaPlans, testing::ValuesIn(test::kPublishedGpus),
                         [](const auto& gpu) { return fmt::format("sm{}", gpu.param.capability); });

}  // namespace
}  // namespace mpt

#else

TEST(SdpaPlans, NeedCudnn) {
  GTEST_SKIP() << "this build has no attention by cuDNN: cuDNN or the headers of cudnn-frontend "
                  "are missing (scripts/cudnn_frontend.sh)";
}

#endif
