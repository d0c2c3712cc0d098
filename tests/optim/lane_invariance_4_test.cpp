// The update of a tensor gives the same bits by 4 lanes as on the CPU. Every rule,
// format and rounding.
#include "optim/lane_invariance.h"

namespace mpt {
namespace {

using test::Combination;

TEST(LaneInvariance, EveryCombinationWith4Lanes) {
  for (const Combination& c : test::every_combination()) test::expect_same_bits<4>(c);
}

}  // namespace
}  // namespace mpt
