// A model calls its hooks when weights are read and gradients complete, and needs none.
#include "model/gradient_hooks.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "model/model_bench.h"

namespace mpt::test {
namespace {

class Noting final : public GradientHooks {
 public:
  void before_use(int64_t group) override { used.push_back(group); }
  void gradients_added(int64_t group) override { added.push_back(group); }

  std::vector<int64_t> used, added;
};

TEST(Hooks, AreCalledInTheOrderOfUseAndCompletion) {
  const GoldenModel golden = load_golden("llama_tiny");
  ModelBench bench(golden.config, {.micro_batch = {golden.batch.rows, golden.batch.seq_len}});
  bench.set_weights(golden.weights);
  bench.step(golden, golden.batch.rows);
  const NamedValues alone = bench.gradients();

  Noting hooks;
  bench.llama().set_hooks(hooks);
  bench.step(golden, golden.batch.rows);
  std::vector<int64_t> groups;
  for (int64_t group = 0; group < parameter_groups(golden.config); ++group) groups.push_back(group);
  const auto repeated = std::ranges::unique(hooks.used);
  hooks.used.erase(repeated.begin(), repeated.end());
  EXPECT_EQ(hooks.used, groups);
  std::ranges::reverse(groups);
  EXPECT_EQ(hooks.added, groups);
  EXPECT_TRUE(bench.gradients() == alone);

  bench.llama().set_hooks(GradientHooks::none());
  hooks = {};
  bench.step(golden, golden.batch.rows);
  EXPECT_TRUE(hooks.used.empty() && hooks.added.empty());
  EXPECT_TRUE(bench.gradients() == alone);
}

}  // namespace
}  // namespace mpt::test
