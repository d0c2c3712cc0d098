// Planned workspace of a backward pass of cuDNN's attention, and how sequences share it: arithmetic
// that needs neither cuDNN nor a GPU.
#include "device/cuda/attention_workspace.h"

#include <gtest/gtest.h>

namespace mpt {
namespace {

constexpr auto kOn = DeterministicAttention::kOn, kOff = DeterministicAttention::kOff;

AttentionShape shape_of(int64_t batch, int64_t heads, int64_t tokens = 1024, int64_t dim = 64) {
  return {
      .batch = batch, .seq_len = tokens, .heads = heads, .key_value_heads = heads, .head_dim = dim};
}

// Workspace requested by cuDNN 9.19 with the properties of an H200.
TEST(AttentionWorkspace, IsWhatHopperIsAskedFor) {
  EXPECT_EQ(attention_workspace(shape_of(4, 16), kOn), 134'480'128);
  EXPECT_EQ(attention_workspace(shape_of(8, 16), kOn), 268'960'000);
  EXPECT_EQ(attention_workspace(shape_of(3, 2, 200), kOn), 791'488);
  EXPECT_EQ(attention_workspace(shape_of(4, 16), kOff), 17'039'616);
  EXPECT_EQ(attention_workspace(shape_of(3, 2, 200), kOff), 312'256);
  EXPECT_EQ(attention_workspace(shape_of(2, 4, 1000, 128), kOff), 4'128'256);
}

// The same for SmolLM2-135M's and Llama-3.2-1B's heads.
TEST(AttentionWorkspace, HasPartsOfGroupedQueries) {
  EXPECT_EQ(attention_workspace({4, 2048, 9, 3, 64}, kOn), 321'159'424);
  EXPECT_EQ(attention_workspace({1, 4096, 32, 8, 64}, kOn), 1'107'820'800);
  EXPECT_EQ(attention_workspace({3, 129, 4, 1, 64}, kOn), 1'582'384);
  EXPECT_EQ(attention_workspace({2, 1000, 8, 2, 64}, kOff), 8'256'256);
}

// As many sequences as have 1 GiB of dP: the row sums stored with it do not cost one of them.
TEST(AttentionWorkspace, HoldsAGibibyteOfDp) {
  EXPECT_EQ(attention_groups(shape_of(8, 16), kOn).count, 1);
  for (const int64_t tokens : {256, 512, 1024, 2048, 4096})
    for (const int64_t heads : {2, 8, 16, 32}) {
      const int64_t whole = (int64_t{1} << 30) / (2 * tokens * tokens * heads);
      EXPECT_GE(most_attention_sequences(shape_of(1 << 20, heads, tokens), kOn), whole)
          << tokens << " tokens, " << heads << " heads";
    }
}

TEST(AttentionWorkspace, GroupsAreEven) {
  for (const int64_t batch : {1, 8, 31, 32, 33, 64, 65, 97, 100, 128}) {
    const AttentionShape shape = shape_of(batch, 16);
    const AttentionGroups groups = attention_groups(shape, kOn);
    EXPECT_EQ(groups.count, (batch + 31) / 32) << batch;
    EXPECT_EQ(groups.first(0), 0);
    EXPECT_EQ(groups.first(groups.count), batch);
    EXPECT_LE(groups.most_sequences(), 32);
    EXPECT_LE(groups.most_sequences() - groups.fewest_sequences(), 1) << batch;
    for (int64_t i = 0; i < groups.count; ++i) {
      const int64_t size = groups.first(i + 1) - groups.first(i);
      EXPECT_TRUE(size == groups.most_sequences() || size == groups.fewest_sequences())
          << batch << ", group " << i;
    }
  }
}

TEST(AttentionWorkspace, OneSequenceMayExceedTheLimit) {
  const AttentionShape shape = shape_of(3, 64, 16384);
  ASSERT_GT(attention_workspace(shape_of(1, 64, 16384), kOn), kAttentionWorkspaceBytes);
  EXPECT_EQ(most_attention_sequences(shape, kOn), 1);
  EXPECT_EQ(attention_groups(shape, kOn).count, 3);
}

// Without dP, all sequences run at once.
TEST(AttentionWorkspace, NotDeterministicNeedsNoGroups) {
  EXPECT_EQ(attention_groups(shape_of(128, 16), kOn).count, 4);
  EXPECT_EQ(attention_groups(shape_of(128, 16), kOff).count, 1);
}

// The bias of a sequence is 2 MiB on top of 33.6 MB of workspace, so groups of 32 become groups of
// 30.
TEST(AttentionWorkspace, HasTheBiasOfDocuments) {
  AttentionShape shape = shape_of(64, 16);
  EXPECT_EQ(forward_attention_groups(shape, kOn).count, 1);
  shape.scope = AttentionScope::kDocument;
  EXPECT_EQ(attention_scratch(shape, kOn),
            attention_workspace(shape, kOn) + int64_t{64} * 1024 * 1024 * 2);
  EXPECT_EQ(most_attention_sequences(shape, kOn), 30);
  EXPECT_EQ(attention_groups(shape, kOn).count, 3);
  EXPECT_EQ(forward_attention_groups(shape, kOn).count, 3);
  EXPECT_EQ(forward_attention_groups(shape, kOff).count, 1);
}

}  // namespace
}  // namespace mpt
