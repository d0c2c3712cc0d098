// Casts to nearest against LLVM's APFloat, which shares nothing with NVIDIA's headers. Compiled if
// LLVM 19 or later is found.
//
// APFloat does not saturate, so inputs are limited to the format's range first; its NaNs are
// compared by class, and its E2M1 has none.
//
//   MPT_LONG_TESTS=1 mpt_precision_tests --gtest_filter='LlvmCasts.EveryInput*'     all 2^32 inputs
#include <gtest/gtest.h>
#include <llvm/ADT/APFloat.h>
#include <llvm/ADT/APInt.h>

#include "core/bf16.h"
#include "precision/oracles/cast_inputs.h"

namespace mpt::test {
namespace {

using llvm::APFloat;

uint32_t converted(float x, const llvm::fltSemantics& to) {
  APFloat value(x);
  bool inexact = false;
  value.convert(to, APFloat::rmNearestTiesToEven, &inexact);
  return static_cast<uint32_t>(value.bitcastToAPInt().getZExtValue());
}

template <FloatFormat kFormat>
float limited(float x) {
  return std::fabs(x) > kFormat.max_value ? std::copysign(kFormat.max_value, x) : x;
}

bool e4m3_agrees(uint32_t bits) {
  const float x = float_of(bits);
  const uint32_t code = round_to<kE4M3>(x, Nearest{});
  return x != x ? code == kE4M3.nan_code
                : code == converted(limited<kE4M3>(x), APFloat::Float8E4M3FN());
}
bool e5m2_agrees(uint32_t bits) {
  const float x = float_of(bits);
  const uint32_t code = round_to<kE5M2>(x, Nearest{});
  return x != x ? code == kE5M2.nan_code
                : code == converted(limited<kE5M2>(x), APFloat::Float8E5M2());
}
bool e2m1_agrees(uint32_t bits) {
  const float x = float_of(bits);
  const uint32_t code = round_to<kE2M1>(x, Nearest{});
  return x != x ? code == kE2M1.nan_code
                : code == converted(limited<kE2M1>(x), APFloat::Float4E2M1FN());
}
bool fp16_agrees(uint32_t bits) {
  const float x = float_of(bits);
  const uint32_t code = fp16_nearest(x);
  return x != x ? code == kBinary16.nan_code : code == converted(x, APFloat::IEEEhalf());
}
bool bf16_agrees(uint32_t bits) {
  const float x = float_of(bits);
  const uint32_t code = bf16_nearest(x).bits;
  return x != x ? code == 0x7FFF : code == converted(x, APFloat::BFloat());
}

TEST(LlvmCasts, Stratified) {
  expect_stratified("E4M3", e4m3_agrees);
  expect_stratified("E5M2", e5m2_agrees);
  expect_stratified("E2M1", e2m1_agrees);
  expect_stratified("FP16", fp16_agrees);
  expect_stratified("BF16", bf16_agrees);
}

TEST(LlvmCasts, EveryInputE4M3) {
  if (!long_tests()) GTEST_SKIP() << "MPT_LONG_TESTS=1 runs it";
  expect_all("E4M3", e4m3_agrees);
}
TEST(LlvmCasts, EveryInputE5M2) {
  if (!long_tests()) GTEST_SKIP() << "MPT_LONG_TESTS=1 runs it";
  expect_all("E5M2", e5m2_agrees);
}
TEST(LlvmCasts, EveryInputE2M1) {
  if (!long_tests()) GTEST_SKIP() << "MPT_LONG_TESTS=1 runs it";
  expect_all("E2M1", e2m1_agrees);
}

// Every code's value.
template <FloatFormat kFormat>
void expect_decoded(const llvm::fltSemantics& format, unsigned width) {
  for (uint32_t code = 0; code < 1u << width; ++code) {
    APFloat value(format, llvm::APInt(width, code));
    bool inexact = false;
    value.convert(APFloat::IEEEsingle(), APFloat::rmNearestTiesToEven, &inexact);
    const float ours = decode<kFormat>(code);
    ASSERT_EQ(std::isnan(ours), value.isNaN()) << code;
    if (!value.isNaN()) {
      ASSERT_EQ(bits_of(ours), value.bitcastToAPInt().getZExtValue()) << code;
    }
  }
}
TEST(LlvmCasts, DecodeEveryCode) {
  expect_decoded<kE4M3>(APFloat::Float8E4M3FN(), 8);
  expect_decoded<kE5M2>(APFloat::Float8E5M2(), 8);
  expect_decoded<kE2M1>(APFloat::Float4E2M1FN(), 4);
  expect_decoded<kBinary16>(APFloat::IEEEhalf(), 16);
}

}  // namespace
}  // namespace mpt::test
