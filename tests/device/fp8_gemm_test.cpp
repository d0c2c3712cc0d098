// FP8 GEMMs of the CPU against FP64 dot products of the decoded operands.
#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "device/backends.h"
#include "device/fp8_problem.h"

namespace mpt {
namespace {

// Codes times one.
TEST(Fp8Gemm, EveryCodeIsItsValue) {
  const auto device = make_cpu_device(1);
  const auto allocator = device->make_allocator();
  uint8_t one = 0x38;  // E4M3
  for (const DType type : {DType::kE4M3, DType::kE5M2})
    for (const Transpose transposed : {Transpose::kNo, Transpose::kYes}) {
      std::vector<uint8_t> codes(256);
      for (int i = 0; i < 256; ++i) codes[size_t(i)] = uint8_t(i);
      std::vector<float> values(256);
      const auto column = [&](auto* data, DType dtype) {
        return Tensor{reinterpret_cast<std::byte*>(data), dtype, 256, 1, 1};
      };
      GemmCall call{.a = column(codes.data(), type),
                    .b = {reinterpret_cast<std::byte*>(&one), DType::kE4M3, 1, 1, 1},
                    .d = column(values.data(), DType::kF32),
                    .transpose_a = transposed};
      if (transposed == Transpose::kYes) call.a = {call.a.data, type, 1, 256, 256};
      device->gemm().reserve(*allocator, std::array{call});
      device->gemm().run(call);
      for (int i = 0; i < 256; ++i) {
        const double want = test::value_of_fp8(type, uint32_t(i));
        if (std::isnan(want))
          EXPECT_TRUE(std::isnan(values[size_t(i)])) << i;
        else
          EXPECT_EQ(values[size_t(i)], want) << name_of(type) << " " << i;
      }
    }
}

using test::Fp8Problem;

class Fp8GemmOf : public testing::TestWithParam<Fp8Problem> {};

TEST_P(Fp8GemmOf, IsTheScaledDotProduct) {
  // k multiplications and additions in FP32.
  test::expect_fp8_product(*make_cpu_device(2), GetParam(), [](std::span<const double> terms) {
    return double(terms.size()) * 0x1p-24 * test::sum_of_sizes(terms);
  });
}

std::string problem_name(const testing::TestParamInfo<Fp8Problem>& tested) {
  return tested.param.name;
}

constexpr auto kNo = Transpose::kNo, kYes = Transpose::kYes;
INSTANTIATE_TEST_SUITE_P(OfLinearLayers, Fp8GemmOf,
                         testing::Values(Fp8Problem{"fprop", DType::kE4M3, DType::kE4M3,
                                                    DType::kBF16, kNo, kYes, Accumulate::kNo},
                                         Fp8Problem{"dgrad", DType::kE5M2, DType::kE4M3,
                                                    DType::kBF16, kNo, kNo, Accumulate::kNo},
                                         Fp8Problem{"wgrad", DType::kE5M2, DType::kE4M3,
                                                    DType::kBF16, kYes, kNo, Accumulate::kNo},
                                         Fp8Problem{"wgrad_fp32", DType::kE5M2, DType::kE4M3,
                                                    DType::kF32, kYes, kNo, Accumulate::kNo},
                                         Fp8Problem{"wgrad_added", DType::kE5M2, DType::kE4M3,
                                                    DType::kF32, kYes, kNo, Accumulate::kYes},
                                         Fp8Problem{"added_bf16", DType::kE4M3, DType::kE4M3,
                                                    DType::kBF16, kNo, kNo, Accumulate::kYes}),
                         problem_name);

TEST(Fp8GemmTypes, WhatGpusDoNotHaveIsRefused) {
  const auto device = make_cpu_device(1);
  const auto allocator = device->make_allocator();
  const auto run = [&](DType a, DType b, DType d) {
    const auto tensor = [&](DType type) { return allocator->tensor(kScratchMemory, type, 16, 16); };
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
