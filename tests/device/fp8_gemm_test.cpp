// FP8 products of the CPU against FP64 dot products of the decoded operands.
#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "core/float_format.h"
#include "device/cpu/convert_rows.h"
#include "device/cpu/cpu_device.h"
#include "device/expect_rounded.h"
#include "support/draws.h"
#include "support/host_matrix.h"

namespace mpt {
namespace {

// By the definition of the formats, not by the way the program decodes.
double value_of(DType type, int code) {
  const bool e4m3 = type == DType::kE4M3;
  const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  const int exponent = (code & 0x7F) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  if (e4m3 ? (code & 0x7F) == 0x7F : exponent == 31)
    return !e4m3 && mantissa == 0 ? sign * INFINITY : double(NAN);
  const double fraction = std::ldexp(double(mantissa), -mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

TEST(WidenRows, EveryFp8Code) {
  for (const DType type : {DType::kE4M3, DType::kE5M2}) {
    std::vector<uint8_t> codes(256);
    for (int i = 0; i < 256; ++i) codes[size_t(i)] = uint8_t(i);
    std::vector<float> values(256);
    widen_rows({reinterpret_cast<std::byte*>(codes.data()), type, 1, 256, 256},
               {reinterpret_cast<std::byte*>(values.data()), DType::kF32, 1, 256, 256});
    for (int i = 0; i < 256; ++i) {
      const double want = value_of(type, i);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(values[size_t(i)])) << i;
      } else {
        EXPECT_EQ(values[size_t(i)], want) << name_of(type) << " " << i;
        EXPECT_EQ(std::signbit(values[size_t(i)]), i >= 128) << i;
      }
    }
  }
}

struct Codes {
  DType type;
  int64_t rows, cols;
  std::vector<uint8_t> bytes;

  Codes(DType t, int64_t r, int64_t c, uint64_t seed) : type(t), rows(r), cols(c), bytes(size_t(r * c)) {
    test::Draws draws(seed);
    for (uint8_t& b : bytes) do
        b = uint8_t(draws.word());
      while (!std::isfinite(value_of(type, b)) || std::fabs(value_of(type, b)) > 512);
  }
  [[nodiscard]] Tensor view() const {
    return {reinterpret_cast<std::byte*>(const_cast<uint8_t*>(bytes.data())), type, rows, cols, cols};
  }
  [[nodiscard]] double at(int64_t r, int64_t c) const { return value_of(type, bytes[size_t(r * cols + c)]); }
};

struct Problem {
  const char* name;
  DType a, b, d;
  Transpose transpose_a, transpose_b;
  Accumulate accumulate;
};

class Fp8Gemm : public testing::TestWithParam<Problem> {};

TEST_P(Fp8Gemm, IsTheScaledDotProduct) {
  const Problem& p = GetParam();
  const int64_t m = 48, n = 32, k = 80;
  const bool ta = p.transpose_a == Transpose::kYes, tb = p.transpose_b == Transpose::kYes;
  const Codes a(p.a, ta ? k : m, ta ? m : k, 1), b(p.b, tb ? n : k, tb ? k : n, 2);
  test::HostMatrix d(p.d, {m, n});
  test::Draws draws(3);
  d.fill([&](int64_t, int64_t) { return draws.bell(20); });
  const test::HostMatrix before = d;
  const float inv_a = 1.0f / 149.333328f, inv_b = 1.0f / 3000.7f;
  const auto device = make_cpu_device(2);
  const auto allocator = device->make_allocator();
  const GemmCall call{.a = a.view(),
                      .b = b.view(),
                      .d = d,
                      .transpose_a = p.transpose_a,
                      .transpose_b = p.transpose_b,
                      .accumulate = p.accumulate,
                      .scale_inv_a = &inv_a,
                      .scale_inv_b = &inv_b};
  device->gemm().reserve(*allocator, std::array{call});
  device->gemm().run(call);
  for (int64_t r = 0; r < m; ++r)
    for (int64_t c = 0; c < n; ++c) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double term = (ta ? a.at(i, r) : a.at(r, i)) * (tb ? b.at(c, i) : b.at(i, c));
        sum += term, size += std::fabs(term);
      }
      const double scale = double(inv_a) * double(inv_b);
      const double start = p.accumulate == Accumulate::kYes ? double(before.at(r, c)) : 0.0;
      // k products and sums, the product of the scales, its application and the addition, in FP32.
      const double bound = double(k + 3) * 0x1p-24 * (size * scale + std::fabs(start));
      ASSERT_TRUE(test::is_rounded(d.at(r, c), start + scale * sum, bound, p.d)) << r << "," << c;
    }
}

std::string problem_name(const testing::TestParamInfo<Problem>& tested) { return tested.param.name; }

constexpr auto kNo = Transpose::kNo, kYes = Transpose::kYes;
INSTANTIATE_TEST_SUITE_P(
    OfLinearLayers, Fp8Gemm,
    testing::Values(
        Problem{"fprop", DType::kE4M3, DType::kE4M3, DType::kBF16, kNo, kYes, Accumulate::kNo},
        Problem{"dgrad", DType::kE5M2, DType::kE4M3, DType::kBF16, kNo, kNo, Accumulate::kNo},
        Problem{"wgrad", DType::kE5M2, DType::kE4M3, DType::kBF16, kYes, kNo, Accumulate::kNo},
        Problem{"wgrad_fp32", DType::kE5M2, DType::kE4M3, DType::kF32, kYes, kNo, Accumulate::kNo},
        Problem{"wgrad_added", DType::kE5M2, DType::kE4M3, DType::kF32, kYes, kNo, Accumulate::kYes},
        Problem{"added_bf16", DType::kE4M3, DType::kE4M3, DType::kBF16, kNo, kNo, Accumulate::kYes}),
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
