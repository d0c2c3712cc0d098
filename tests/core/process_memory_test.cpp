#include "core/process_memory.h"

#include <vector>

#include <gtest/gtest.h>

namespace mpt {
namespace {

TEST(ProcessMemory, WhatIsTouchedIsResident) {
  const int64_t before = resident_bytes();
  ASSERT_GT(before, 0);
  constexpr int64_t kCount = int64_t{64} << 20;
  const std::vector<char> memory(kCount, 1);
  EXPECT_GE(resident_bytes() - before, kCount - (int64_t{1} << 20)) << memory.back();
}

}  // namespace
}  // namespace mpt
