// Ranks on processors that sum products of BF16 numbers in different ways.
#include <array>
#include <span>

#include <gtest/gtest.h>

#include "device/backends.h"
#include "parallel/data_parallel.h"
#include "support/captured_log.h"
#include "support/rank_threads.h"

namespace mpt::test {
namespace {

const GemmChoice kAvx512{"bf16 products", "avx512_bf16"};

// Lets ranks agree of which some began with avx512_bf16 and the others with fma; returns how many
// use avx512_bf16 then.
int64_t ranks_with_avx512(const std::array<bool, 3>& began_with_avx512) {
  std::array<int64_t, 3> uses{};
  RankThreads(3).run([&](Communicator& ranks) {
    const auto rank = size_t(ranks.rank());
    const std::unique_ptr<Device> device = make_cpu_device(1, Bf16Products::kAuto);
    device->gemm().restore(std::span(&kAvx512, began_with_avx512[rank] ? 1 : 0));
    agree_on_products(ranks, *device);
    uses[rank] = std::ssize(device->gemm().choices());
  });
  return uses[0] + uses[1] + uses[2];
}

TEST(RanksProducts, TakeFmaWhereTheyDiffer) {
  if (const std::string problem = why_no_bf16_products(Bf16Products::kAvx512Bf16); !problem.empty())
    GTEST_SKIP() << problem;
  const CapturedLog log;
  EXPECT_EQ(ranks_with_avx512({true, false, true}), 0);
  EXPECT_NE(log.text().find("rank 1 would sum them by fma, rank 0 by avx512_bf16"),
            std::string::npos)
      << log.text();
}

TEST(RanksProducts, StayWhatTheyAreWhereTheyAgree) {
  EXPECT_EQ(ranks_with_avx512({false, false, false}), 0);
  if (why_no_bf16_products(Bf16Products::kAvx512Bf16).empty()) {
    EXPECT_EQ(ranks_with_avx512({true, true, true}), 3);
  }
}

}  // namespace
}  // namespace mpt::test
