// Which cache lines are prefetched, and in what order.
#include "device/cpu/cpu_prefetch.h"

#include <vector>

#include <gtest/gtest.h>

namespace mpt {
namespace {

std::byte* at(int64_t address) { return reinterpret_cast<std::byte*>(address); }

std::vector<int64_t> taken(PanelPrefetch& memory, int64_t count) {
  std::vector<const std::byte*> lines(size_t(count) + 1);
  lines.resize(size_t(memory.take(count, lines.data()) - lines.data()));
  std::vector<int64_t> addresses;
  for (const std::byte* line : lines) addresses.push_back(reinterpret_cast<int64_t>(line));
  return addresses;
}

using Addresses = std::vector<int64_t>;

TEST(PanelPrefetch, EveryLineOfEveryRowOnce) {
  PanelPrefetch memory;
  memory.follow({at(1000), DType::kF32, 2, 20, 100});  // two lines a row, 400 bytes apart
  memory.follow({at(9000), DType::kBF16, 3, 32, 64});  // one line a row
  EXPECT_EQ(memory.lines(), 7);
  EXPECT_EQ(taken(memory, 3), (Addresses{1000, 1064, 1400}));
  EXPECT_EQ(taken(memory, 0), Addresses{});
  EXPECT_EQ(taken(memory, 2), (Addresses{1464, 9000}));
  EXPECT_EQ(taken(memory, 9), (Addresses{9128, 9256}));
  EXPECT_EQ(taken(memory, 1), Addresses{});
}

TEST(PanelPrefetch, NothingOfEmptyBlocks) {
  PanelPrefetch memory;
  memory.follow({at(1000), DType::kF32, 0, 20, 20});
  memory.follow({at(1000), DType::kF32, 5, 0, 20});
  memory.follow({at(2000), DType::kE4M3, 1, 65, 65});
  EXPECT_EQ(memory.lines(), 2);
  EXPECT_EQ(taken(memory, 5), (Addresses{2000, 2064}));
}

TEST(PanelPrefetch, TooManyBlocksAreALogicError) {
  PanelPrefetch memory;
  const Tensor block{at(1000), DType::kF32, 1, 1, 1};
  for (int i = 0; i < PanelPrefetch::kMostBlocks; ++i) memory.follow(block);
  EXPECT_THROW(memory.follow(block), LogicError);
}

}  // namespace
}  // namespace mpt
