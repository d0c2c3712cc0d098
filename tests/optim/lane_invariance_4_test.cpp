// An update by 4 lanes gives the same bits as on the CPU, for every rule, format and rounding. Only
// under sanitizers, under which there is no fake CUDA (cuda/optimizer_ops_test.cpp).
#ifdef MPT_LOCKSTEP_RULES
#include "optim/lane_invariance.h"

namespace mpt {
namespace {

using test::Combination;

TEST(LaneInvariance, EveryCombinationWith4Lanes) {
  for (const Combination& c : test::tested_combinations()) test::expect_same_bits<4>(c);
}

}  // namespace
}  // namespace mpt
#endif
