// An update by 4 lanes gives the same bits as on the CPU, for every rule, format and rounding.
#include "optim/lane_invariance.h"

namespace mpt {
namespace {

using test::Combination;

TEST(LaneInvariance, EveryCombinationWith4Lanes) {
  for (const Combination& c : test::every_combination()) test::expect_same_bits<4>(c);
}

}  // namespace
}  // namespace mpt
