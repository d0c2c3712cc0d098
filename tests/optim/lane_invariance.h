// Updates by lanes that run in lockstep against those of the CPU.
#pragma once

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "optim/combinations.h"
#include "optim/update/optimizer_ops_on.h"
#include "support/draws.h"
#include "support/lockstep_exec.h"

namespace mpt::test {

// Returns everything after two early steps and one so late that bias corrections are 1, which a
// lone lane skips, by the given operations; null: those of the CPU.
inline std::vector<uint32_t> updated(const Combination& c, std::unique_ptr<OptimizerOps> ops) {
  OptimizerRun run(c.setup, combination_shapes());
  Draws draws(21);
  for (size_t i = 0; i < run.targets().size(); ++i)
    run.encode(i, [&](int64_t, int64_t) { return draws.signed_binades(-14, 1); });
  run.optimizer().weights_initialized();
  if (ops) run.optimizer().replace_ops(std::move(ops));
  for (const int64_t t : {1, 2, 100'000}) {
    for (size_t i = 0; i < run.targets().size(); ++i)
      fill_tensor(run.gradient(i), [&](int64_t, int64_t) { return draws.signed_binades(-14, 1); });
    run.step(t, 0.7f);
  }
  return run.everything();
}

// Apollo-E's rows are summed by one lane here too: the order of a sum depends on the group.
template <int kLanes>
void expect_same_bits(const Combination& c) {
  using Exec = LockstepExec<kLanes>;
  ASSERT_EQ(updated(c, std::make_unique<OptimizerOpsOn<Exec>>(Exec{})), updated(c, nullptr))
      << c.name;
}

}  // namespace mpt::test
