// Memory counted by purpose, for any purposes.
#include "device/memory.h"

#include <limits>

#include <gtest/gtest.h>

namespace mpt {
namespace {

TEST(MemoryUse, CountsByNameInTheOrderOfFirstRequests) {
  MemoryUse use;
  use.add({"tables"}, 3);
  use.add(kScratchMemory, 5);
  use.add({"tables"}, 4);
  ASSERT_EQ(use.entries().size(), 2u);
  EXPECT_EQ(use.entries()[0].purpose.name, "tables");
  EXPECT_EQ(use.entries()[0].bytes, 7);
  EXPECT_EQ(use.entries()[1].purpose, kScratchMemory);
  EXPECT_EQ(use.of({"tables"}), 7);
  EXPECT_EQ(use.of({"nothing"}), 0);
  EXPECT_EQ(use.total(), 12);
}

TEST(MemoryUse, TwoOfOneNameAreOnePurpose) {
  const char name[] = "tables";
  MemoryUse use;
  use.add({"tables"}, 1);
  use.add({name}, 1);
  EXPECT_EQ(use.of({"tables"}), 2);
}

TEST(MemoryUse, MoreThanItHoldsIsTheMostThatItHolds) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  MemoryUse use;
  use.add({"tables"}, kMost - 1);
  use.add({"tables"}, 2);
  use.add({"rows"}, 2);
  EXPECT_EQ(use.of({"tables"}), kMost);
  EXPECT_EQ(use.total(), kMost);
}

TEST(Scratch, StartsAnewWithAnotherAllocator) {
  PlanningAllocator first, second;
  Scratch scratch;
  scratch.reserve(first, 100);
  scratch.reserve(first, 90);
  scratch.reserve(second, 64);
  EXPECT_EQ(first.use().of(kScratchMemory), 128);
  EXPECT_EQ(second.use().of(kScratchMemory), 64);
}

}  // namespace
}  // namespace mpt
