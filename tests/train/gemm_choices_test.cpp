// Ranks on processors that sum GEMMs of BF16 numbers in different ways.
#include <array>
#include <map>
#include <span>

#include <gtest/gtest.h>

#include "device/backends.h"
#include "support/captured_log.h"
#include "support/rank_threads.h"
#include "train/step/same_on_all_ranks.h"

namespace mpt::test {
namespace {

const GemmChoice kAvx512{"bf16 dot", "avx512_bf16"};

// Lets ranks agree, some of which began with avx512_bf16 and the others with fma; returns how many
// use avx512_bf16 afterward.
int64_t ranks_with_avx512(const std::array<bool, 3>& began_with_avx512) {
  std::array<int64_t, 3> uses{};
  RankThreads(3).run([&](Communicator& ranks) {
    const auto rank = size_t(ranks.rank());
    const std::unique_ptr<Device> device = make_cpu_device(1, Bf16Dot::kAuto);
    device->gemm().restore(std::span(&kAvx512, began_with_avx512[rank] ? 1 : 0));
    agree_on_gemms(ranks, *device);
    uses[rank] = std::ssize(device->gemm().choices());
  });
  return uses[0] + uses[1] + uses[2];
}

TEST(RanksProducts, TakeFmaWhereTheyDiffer) {
  if (const std::string problem = why_no_bf16_dot(Bf16Dot::kAvx512Bf16); !problem.empty())
    GTEST_SKIP() << problem;
  const CapturedLog log;
  EXPECT_EQ(ranks_with_avx512({true, false, true}), 0);
  EXPECT_NE(log.text().find("rank 1 would sum them by fma, rank 0 by avx512_bf16"),
            std::string::npos)
      << log.text();
}

TEST(RanksProducts, StayWhatTheyAreWhereTheyAgree) {
  EXPECT_EQ(ranks_with_avx512({false, false, false}), 0);
  if (why_no_bf16_dot(Bf16Dot::kAvx512Bf16).empty()) {
    EXPECT_EQ(ranks_with_avx512({true, true, true}), 3);
  }
}

// Algorithms chosen by a GPU's timings.
class TimedGemm : public Gemm {
 public:
  void reserve(Allocator&, std::span<const GemmCall>) override {}
  void run(const GemmCall&) override {}
  [[nodiscard]] std::vector<GemmChoice> choices() const override {
    std::vector<GemmChoice> all;
    for (const auto& [key, algorithm] : chosen) all.push_back({key, algorithm});
    return all;
  }
  void restore(std::span<const GemmChoice> choices) override {
    for (const GemmChoice& choice : choices) chosen[choice.key] = choice.algorithm;
  }
  std::map<std::string, std::string> chosen;
};

class TimedGpu : public Device {
 public:
  [[nodiscard]] Backend backend() const override { return Backend::kCuda; }
  [[nodiscard]] std::string name() const override { return "GPU"; }
  [[nodiscard]] std::string libraries() const override { return ""; }
  [[nodiscard]] int64_t memory_bytes() const override { return 0; }
  std::unique_ptr<Allocator> make_allocator() override { return nullptr; }
  void download(const Tensor&, std::byte*) override {}
  void upload(const std::byte*, const Tensor&) override {}
  void synchronize() override {}
  Gemm& gemm() override { return timed; }
  Attention& attention() override { throw std::logic_error("no attention"); }
  TimedGemm timed;
};

TEST(RanksProducts, OfGpusTakeTheAlgorithmsOfRank0) {
  std::array<std::map<std::string, std::string>, 3> chosen;
  RankThreads(3).run([&](Communicator& ranks) {
    TimedGpu gpu;
    gpu.timed.chosen["both \"quoted\""] = fmt::format("algorithm {}", ranks.rank());
    if (ranks.rank() == 2) gpu.timed.chosen["rows of its own"] = "algorithm 2";
    agree_on_gemms(ranks, gpu);
    chosen[size_t(ranks.rank())] = gpu.timed.chosen;
  });
  for (const auto& of_rank : chosen) EXPECT_EQ(of_rank.at("both \"quoted\""), "algorithm 0");
  EXPECT_EQ(chosen[2].at("rows of its own"), "algorithm 2");
}

}  // namespace
}  // namespace mpt::test
