// An update by 32 lanes gives the same bits as on the CPU, for every rule, format and rounding.
#include "optim/lane_invariance.h"

namespace mpt {
namespace {

using test::Combination;

// With two of the ways to keep states: a thread for every lane takes its time.
TEST(LaneInvariance, EveryRuleFormatAndRoundingWith32Lanes) {
  for (const Combination& c : test::every_combination()) {
    const OptimizerOptions& options = c.setup.options;
    if (options.state == Format::kF32 || options.state_rounding == Rounding::kStochastic)
      test::expect_same_bits<32>(c);
  }
}

}  // namespace
}  // namespace mpt
