// GEMMs by instructions for pairs of BF16 numbers: the bits defined by docs/numerics.md "Dot
// products of BF16 numbers", for every layout, type and size class. If the processor has no AMX, its
// instructions are emulated.
#if defined(__x86_64__)

#include <array>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/bf16.h"
#include "device/backends.h"
#include "device/fp8_problem.h"
#include "device/gemm_problem.h"
#include "support/amx_emulator.h"
#include "support/bf16_dot_model.h"
#include "support/captured_log.h"
#include "support/expect_error.h"

namespace mpt::test {
namespace {

constexpr int64_t kPart = 512, kTile = 32;  // terms

uint16_t bits_of(float exact) { return uint16_t(std::bit_cast<uint32_t>(exact) >> 16); }

uint16_t bits_at(const HostMatrix& x, int64_t row, int64_t col) {
  const DType type = x.view().dtype;
  if (!is_fp8(type)) return bits_of(x.at(row, col));
  return bits_of(float(value_of_fp8(type, uint8_t(x.view().data[row * x.view().stride + col]))));
}

// Terms of a sum as BF16, padded with zeros to whole tiles.
struct Terms {
  std::vector<uint16_t> a, b;
};
Terms terms_of(const GemmProblem& p, const HostMatrix& a, const HostMatrix& b, int64_t row,
               int64_t col, int64_t first, int64_t end) {
  Terms terms;
  for (int64_t i = first; i < end; ++i) {
    terms.a.push_back(p.transpose_a == Transpose::kNo ? bits_at(a, row, i) : bits_at(a, i, row));
    terms.b.push_back(p.transpose_b == Transpose::kNo ? bits_at(b, i, col) : bits_at(b, col, i));
  }
  const auto padded = size_t((end - first + kTile - 1) / kTile * kTile);
  terms.a.resize(padded);
  terms.b.resize(padded);
  return terms;
}

float sum_of(Bf16Dot dot, const Terms& terms) {
  float sum = 0;
  if (dot == Bf16Dot::kAvx512Bf16)
    for (size_t i = 0; i < terms.a.size(); i += 2)
      sum = vdpbf16ps(sum, {terms.a[i], terms.a[i + 1]}, {terms.b[i], terms.b[i + 1]});
  else
    for (size_t i = 0; i < terms.a.size(); i += kTile)
      sum = tdpbf16ps(sum, std::span(terms.a).subspan(i, kTile),
                      std::span(terms.b).subspan(i, kTile));
  return sum;
}

float element_of(Bf16Dot dot, const GemmProblem& p, const HostMatrix& a, const HostMatrix& b,
                 const HostMatrix& before, float alpha, int64_t row, int64_t col) {
  const int64_t parts = std::max<int64_t>(1, (p.k + kPart - 1) / kPart);
  float d = p.accumulate == Accumulate::kYes ? before.at(row, col) : 0.0f;
  for (int64_t part = 0; part < parts; ++part) {
    const float sum =
        sum_of(dot, terms_of(p, a, b, row, col, p.k * part / parts, p.k * (part + 1) / parts));
    const bool first = part == 0 && p.accumulate == Accumulate::kNo;
    d = first ? alpha * sum : std::fma(alpha, sum, d);
  }
  return p.types[2] == DType::kBF16 ? rounded_to<bf16>(d) : d;
}

HostMatrix operand(DType type, int64_t rows, int64_t cols, const GemmProblem& p, uint64_t seed) {
  return is_fp8(type) ? fp8_operand(type, rows, cols, seed)
                      : gemm_operand(type, rows, cols, p, seed);
}

class Bf16Gemm : public testing::TestWithParam<Bf16Dot> {
 protected:
  void SetUp() override {
    const std::string problem = why_no_bf16_dot(GetParam());
    if (problem.empty()) return;
    if (GetParam() != Bf16Dot::kAmxBf16) GTEST_SKIP() << problem;
    if (!__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "AVX-512 is not emulated";
    emulator_.emplace();
  }

  // Compares every element with its definition.
  void expect_bits(const GemmProblem& p, int threads = 1, float scale = 1) {
    SCOPED_TRACE(fmt::format("[{},{}] k {} transposes {}{} accumulate {} types {} {} {} padding {}",
                             p.m, p.n, p.k, int(p.transpose_a), int(p.transpose_b),
                             int(p.accumulate), name_of(p.types[0]), name_of(p.types[1]),
                             name_of(p.types[2]), p.padding));
    const bool across = p.transpose_a == Transpose::kYes, along = p.transpose_b == Transpose::kNo;
    const HostMatrix a = operand(p.types[0], across ? p.k : p.m, across ? p.m : p.k, p, 1),
                     b = operand(p.types[1], along ? p.k : p.n, along ? p.n : p.k, p, 2),
                     before = gemm_operand(p.types[2], p.m, p.n, p, 3);
    HostMatrix d = before;
    const std::unique_ptr<Device> device = make_cpu_device(threads, GetParam());
    const std::unique_ptr<Allocator> allocator = device->make_allocator();
    GemmCall call = GemmOperands::call_of(p, a, b, d);
    if (is_fp8(p.types[0])) call.scale_inv_a = &scale;
    device->gemm().reserve(*allocator, std::array{call});
    device->gemm().run(call);
    ASSERT_TRUE(d.padding_untouched());
    const float alpha = is_fp8(p.types[0]) ? scale : 1;
    for (int64_t row = 0; row < p.m; ++row)
      for (int64_t col = 0; col < p.n; ++col)
        ASSERT_EQ(std::bit_cast<uint32_t>(d.at(row, col) + 0.0f),
                  std::bit_cast<uint32_t>(element_of(GetParam(), p, a, b, before, alpha, row, col) +
                                          0.0f))
            << row << "," << col << ": " << d.at(row, col);
  }

  std::optional<AmxEmulator> emulator_;
};

constexpr Transpose kTransposes[] = {Transpose::kNo, Transpose::kYes};

TEST_P(Bf16Gemm, EveryTransposeTypeAndAccumulation) {
  for (const Transpose ta : kTransposes)
    for (const Transpose tb : kTransposes)
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes})
        for (const DType d : {DType::kF32, DType::kBF16})
          for (const int64_t padding : {0, 5})
            expect_bits({.m = 17,
                         .n = 23,
                         .k = 37,
                         .transpose_a = ta,
                         .transpose_b = tb,
                         .accumulate = accumulate,
                         .types = {DType::kBF16, DType::kBF16, d},
                         .padding = padding});
}

TEST_P(Bf16Gemm, Fp8IsExact) {
  for (const Transpose ta : kTransposes)
    for (const Transpose tb : kTransposes)
      for (const DType a : {DType::kE4M3, DType::kE5M2})
        expect_bits({.m = 19,
                     .n = 33,
                     .k = 41,
                     .transpose_a = ta,
                     .transpose_b = tb,
                     .types = {a, DType::kE4M3, DType::kBF16}},
                    1, 0.37f);
}

TEST_P(Bf16Gemm, SizesOfOneAndOddSizes) {
  for (const int64_t m : {1, 15, 16, 33})
    for (const int64_t n : {1, 16, 49})
      for (const int64_t k : {1, 2, 31, 33, 64})
        expect_bits({.m = m,
                     .n = n,
                     .k = k,
                     .transpose_b = Transpose::kYes,
                     .accumulate = Accumulate::kYes,
                     .types = {DType::kBF16, DType::kBF16, DType::kF32}});
}

TEST_P(Bf16Gemm, SeveralPartsAndBlocksByAnyNumberOfThreads) {
  for (const DType d : {DType::kF32, DType::kBF16})
    for (const int threads : {1, 3})
      expect_bits({.m = 131, .n = 75, .k = 1100, .types = {DType::kBF16, DType::kBF16, d}},
                  threads);
  expect_bits({.m = 5, .n = 1100, .k = 40, .types = {DType::kBF16, DType::kBF16, DType::kF32}}, 2);
}

TEST_P(Bf16Gemm, WithoutTermsOrResult) {
  for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes})
    expect_bits({.m = 3,
                 .n = 5,
                 .k = 0,
                 .accumulate = accumulate,
                 .types = {DType::kBF16, DType::kBF16, DType::kF32}});
  expect_bits({.m = 0, .n = 5, .k = 3, .types = {DType::kBF16, DType::kBF16, DType::kF32}});
}

// Operands that are not exact in BF16 are multiplied as before.
TEST_P(Bf16Gemm, Fp32OperandsStayFp32) {
  const GemmProblem p{.m = 7, .n = 9, .k = 300, .types = {DType::kF32, DType::kBF16, DType::kF32}};
  const auto run = [&](Bf16Dot dot) {
    GemmOperands x(p);
    const std::unique_ptr<Device> device = make_cpu_device(1, dot);
    const std::unique_ptr<Allocator> allocator = device->make_allocator();
    const GemmCall call = x.call(p);
    device->gemm().reserve(*allocator, std::array{call});
    device->gemm().run(call);
    return x.d;
  };
  EXPECT_EQ(run(GetParam()), run(Bf16Dot::kFma));
}

TEST_P(Bf16Gemm, TheInstructionIsUsed) {
  const GemmProblem p{
      .m = 40, .n = 40, .k = 64, .types = {DType::kBF16, DType::kBF16, DType::kF32}};
  expect_bits(p);  // two groups of 20 rows, a panel of 32 columns and one of 8, twice 32 terms
  if (emulator_) {
    EXPECT_EQ(emulator_->products(), 2 * 2 * (4 + 2));
  }
}

INSTANTIATE_TEST_SUITE_P(Instructions, Bf16Gemm,
                         testing::Values(Bf16Dot::kAvx512Bf16, Bf16Dot::kAmxBf16),
                         [](const auto& dot) { return std::string(name_of(dot.param)); });

// --- choice --------------------------------------------------------------------------------------

TEST(Bf16Choice, IsStoredUnlessItIsTheUsualOne) {
  EXPECT_TRUE(make_cpu_device(1)->gemm().choices().empty());
  const std::unique_ptr<Device> device = make_cpu_device(1, Bf16Dot::kAvx512Bf16);
  const std::vector<GemmChoice> choices = device->gemm().choices();
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(choices[0], (GemmChoice{"bf16 dot", "avx512_bf16"}));
  EXPECT_NE(device->libraries().find("; BF16 by AVX512_BF16"), std::string::npos);
}

TEST(Bf16Choice, ARunThatMovesSaysSo) {
  const CapturedLog log;
  make_cpu_device(1)->gemm().restore({});
  EXPECT_EQ(log.text(), "");
  const GemmChoice amx{"bf16 dot", "amx_bf16"};
  make_cpu_device(1)->gemm().restore(std::array{amx});
  EXPECT_NE(log.text().find("were summed by amx_bf16, now by fma"), std::string::npos)
      << log.text();
}

TEST(Bf16Choice, AutoGoesOnAsBefore) {
  if (const std::string problem = why_no_bf16_dot(Bf16Dot::kAvx512Bf16); !problem.empty())
    GTEST_SKIP() << problem;
  const GemmChoice avx512{"bf16 dot", "avx512_bf16"};
  const std::unique_ptr<Device> device = make_cpu_device(1, Bf16Dot::kAuto);
  device->gemm().restore(std::array{avx512});
  EXPECT_EQ(device->gemm().choices(), std::vector{avx512});
  device->gemm().restore({});
  EXPECT_TRUE(device->gemm().choices().empty());
  device->gemm().restore(std::array{GemmChoice{"bf16 products", "avx512_bf16"}});  // version 0.2
  EXPECT_EQ(device->gemm().choices(), std::vector{avx512});
}

// The choice of auto is available, and is AMX if AMX is available.
TEST(Bf16Choice, AutoTakesWhatThereIs) {
  const Bf16Dot fastest = fastest_bf16_dot();
  EXPECT_EQ(why_no_bf16_dot(fastest), "");
  EXPECT_EQ(fastest == Bf16Dot::kAmxBf16, why_no_bf16_dot(Bf16Dot::kAmxBf16).empty());
  const std::vector<GemmChoice> choices = make_cpu_device(1, Bf16Dot::kAuto)->gemm().choices();
  EXPECT_EQ(choices.empty(), fastest == Bf16Dot::kFma);
  if (!choices.empty()) {
    EXPECT_EQ(choices[0].algorithm, name_of(fastest));
  }
}

TEST(Bf16Choice, WhatTheProcessorLacksIsRefused) {
  const std::string problem = why_no_bf16_dot(Bf16Dot::kAmxBf16);
  if (problem.empty()) GTEST_SKIP() << "AMX is there";
  EXPECT_ERROR(make_device(DeviceOptions{.bf16_dot = Bf16Dot::kAmxBf16}),
               "device.bf16_dot = amx_bf16", problem);
  make_planning_device(DeviceOptions{.bf16_dot = Bf16Dot::kAmxBf16});
}

}  // namespace
}  // namespace mpt::test

#endif
