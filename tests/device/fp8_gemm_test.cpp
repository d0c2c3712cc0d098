// FP8 products of the CPU against FP64 dot products of the decoded operands.
#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "device/cpu/convert_rows.h"
#include "device/cpu/cpu_device.h"
#include "device/fp8_problem.h"

namespace mpt {
namespace {

TEST(WidenRows, EveryFp8Code) {
  for (const DType type : {DType::kE4M3, DType::kE5M2}) {
    std::vector<uint8_t> codes(256);
    for (int i = 0; i < 256; ++i) codes[size_t(i)] = uint8_t(i);
    std::vector<float> values(256);
    widen_rows({reinterpret_cast<std::byte*>(codes.data()), type, 1, 256, 256},
               {reinterpret_cast<std::byte*>(values.data()), DType::kF32, 1, 256, 256});
    for (int i = 0; i < 256; ++i) {
      const double want = test::value_of_fp8(type, uint32_t(i));
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(values[size_t(i)])) << i;
      } else {
        EXPECT_EQ(values[size_t(i)], want) << name_of(type) << " " << i;
        EXPECT_EQ(std::signbit(values[size_t(i)]), i >= 128) << i;
      }
    }
  }
}

using test::Fp8Problem;

class Fp8Gemm : public testing::TestWithParam<Fp8Problem> {};

TEST_P(Fp8Gemm, IsTheScaledDotProduct) {
  // k products and sums in FP32.
  test::expect_fp8_product(*make_cpu_device(2), GetParam(), [](int64_t k) { return double(k) * 0x1p-24; });
}

std::string problem_name(const testing::TestParamInfo<Fp8Problem>& tested) { return tested.param.name; }

constexpr auto kNo = Transpose::kNo, kYes = Transpose::kYes;
INSTANTIATE_TEST_SUITE_P(
    OfLinearLayers, Fp8Gemm,
    testing::Values(
        Fp8Problem{"fprop", DType::kE4M3, DType::kE4M3, DType::kBF16, kNo, kYes, Accumulate::kNo},
        Fp8Problem{"dgrad", DType::kE5M2, DType::kE4M3, DType::kBF16, kNo, kNo, Accumulate::kNo},
        Fp8Problem{"wgrad", DType::kE5M2, DType::kE4M3, DType::kBF16, kYes, kNo, Accumulate::kNo},
        Fp8Problem{"wgrad_fp32", DType::kE5M2, DType::kE4M3, DType::kF32, kYes, kNo, Accumulate::kNo},
        Fp8Problem{"wgrad_added", DType::kE5M2, DType::kE4M3, DType::kF32, kYes, kNo, Accumulate::kYes},
        Fp8Problem{"added_bf16", DType::kE4M3, DType::kE4M3, DType::kBF16, kNo, kNo, Accumulate::kYes}),
    problem_name);

TEST(Fp8GemmTypes, WhatGpusDoNotHaveIsRefused) {
  const auto device = make_cpu_device(1);
  const auto allocator = device->make_allocator();
  const auto run = [&](DType a, DType b, DType d) {
    const auto tensor = [&](DType type) { return allocator->tensor(Purpose::kScratch, type, 16, 16); };
    const GemmCall call{.a = tensor(a), .b = tensor(b), .d = tensor(d)};
    device->gemm().reserve(*allocator, std::array{call});
    device->gemm().run(call);
  };
  EXPECT_NO_THROW(run(DType::kE4M3, DType::kE4M3, DType::kBF16));
  EXPECT_NO_THROW(run(DType::kE4M3, DType::kE5M2, DType::kF32));
  EXPECT_THROW(run(DType::kE5M2, DType::kE5M2, DType::kBF16), LogicError);
  EXPECT_THROW(run(DType::kE4M3, DType::kBF16, DType::kBF16), LogicError);
  EXPECT_THROW(run(DType::kF32, DType::kE4M3, DType::kBF16), LogicError);
  EXPECT_THROW(run(DType::kE4M3, DType::kE4M3, DType::kE4M3), LogicError);
}

}  // namespace
}  // namespace mpt
