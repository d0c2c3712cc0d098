// How much workspace a backward pass of cuDNN's attention is planned to take, and how sequences
// share it out: arithmetic that needs neither cuDNN nor a GPU.
#include "device/cuda/attention_workspace.h"

#include <gtest/gtest.h>

namespace mpt {
namespace {

constexpr auto kOn = DeterministicAttention::kOn, kOff = DeterministicAttention::kOff;

AttentionShape shape_of(int64_t batch, int64_t heads, int64_t tokens = 1024, int64_t dim = 64) {
  return {.batch = batch, .seq_len = tokens, .heads = heads, .head_dim = dim};
}

// What cuDNN 9.19 asked for with the properties of an H200.
TEST(AttentionWorkspace, IsWhatHopperIsAskedFor) {
  EXPECT_EQ(attention_workspace(shape_of(4, 16), kOn), 134'480'128);
  EXPECT_EQ(attention_workspace(shape_of(8, 16), kOn), 268'960'000);
  EXPECT_EQ(attention_workspace(shape_of(3, 2, 200), kOn), 791'488);
  EXPECT_EQ(attention_workspace(shape_of(4, 16), kOff), 17'039'616);
  EXPECT_EQ(attention_workspace(shape_of(3, 2, 200), kOff), 312'256);
  EXPECT_EQ(attention_workspace(shape_of(2, 4, 1000, 128), kOff), 4'128'256);
}

TEST(AttentionWorkspace, OneSequenceMayExceedTheLimit) {
  const AttentionShape shape = shape_of(3, 64, 16384);
  ASSERT_GT(attention_workspace(shape_of(1, 64, 16384), kOn), kAttentionWorkspaceBytes);
  EXPECT_EQ(most_attention_sequences(shape, kOn), 1);
  EXPECT_EQ(attention_groups(shape, kOn).count, 3);
}

}  // namespace
}  // namespace mpt
