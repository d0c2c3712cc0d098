// Casts to nearest against the host paths of NVIDIA's headers, which need no GPU. Compiled if
// CUDA's headers are found.
//
//   MPT_LONG_TESTS=1 mpt_precision_tests --gtest_filter='CudaCasts.EveryInput*'     all 2^32 inputs
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include "core/bf16.h"
#include "precision/codecs/mxfp8.h"
#include "precision/oracles/cast_inputs.h"

namespace mpt::test {
namespace {

bool e4m3_agrees(uint32_t bits) {
  const float x = float_of(bits);
  return round_to<kE4M3>(x, Nearest{}) == __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}
bool e5m2_agrees(uint32_t bits) {
  const float x = float_of(bits);
  return round_to<kE5M2>(x, Nearest{}) == __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
}
bool e2m1_agrees(uint32_t bits) {
  const float x = float_of(bits);
  return round_to<kE2M1>(x, Nearest{}) == __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest);
}
bool fp16_agrees(uint32_t bits) {
  const float x = float_of(bits);
  return fp16_nearest(x) == __half_raw(__float2half_rn(x)).x;
}
bool bf16_agrees(uint32_t bits) {
  const float x = float_of(bits);
  return bf16_nearest(x).bits == __nv_bfloat16_raw(__float2bfloat16_rn(x)).x;
}

// The quotient is exact in FP64 if it is a power of two, which is where the rounding changes.
bool scale_of_block_agrees(uint32_t bits) {
  const float amax = float_of(bits & 0x7FFFFFFFu);
  if (!(amax <= 448.0f * 0x1p119f)) return true;  // beyond the scales that are made
  return Mxfp8Scales::of(amax) ==
         __nv_cvt_double_to_e8m0(double(amax) / 448, __NV_SATFINITE, cudaRoundPosInf);
}
TEST(CudaCasts, ScalesOfMxfp8) {
  expect_stratified("E8M0", scale_of_block_agrees);
  for (uint32_t code = 0; code < 255; ++code) {
    const __nv_bfloat16_raw value = __nv_cvt_e8m0_to_bf16raw(uint8_t(code));
    EXPECT_EQ(bits_of(e8m0_decode(uint8_t(code))), uint32_t(value.x) << 16) << code;
  }
}

TEST(CudaCasts, Stratified) {
  expect_stratified("E4M3", e4m3_agrees);
  expect_stratified("E5M2", e5m2_agrees);
  expect_stratified("E2M1", e2m1_agrees);
  expect_stratified("FP16", fp16_agrees);
  expect_stratified("BF16", bf16_agrees);
}

TEST(CudaCasts, EveryInputE4M3) {
  if (!long_tests()) GTEST_SKIP() << "MPT_LONG_TESTS=1 runs it";
  expect_all("E4M3", e4m3_agrees);
}
TEST(CudaCasts, EveryInputE5M2) {
  if (!long_tests()) GTEST_SKIP() << "MPT_LONG_TESTS=1 runs it";
  expect_all("E5M2", e5m2_agrees);
}
TEST(CudaCasts, EveryInputE2M1) {
  if (!long_tests()) GTEST_SKIP() << "MPT_LONG_TESTS=1 runs it";
  expect_all("E2M1", e2m1_agrees);
}
TEST(CudaCasts, EveryInputFp16) {
  if (!long_tests()) GTEST_SKIP() << "MPT_LONG_TESTS=1 runs it";
  expect_all("FP16", fp16_agrees);
}
TEST(CudaCasts, EveryInputBf16) {
  if (!long_tests()) GTEST_SKIP() << "MPT_LONG_TESTS=1 runs it";
  expect_all("BF16", bf16_agrees);
}

// Every code, through FP16, which holds all of them exactly.
float half_value(__half_raw half) { return __half2float(__half(half)); }

TEST(CudaCasts, DecodeEveryCode) {
  for (uint32_t code = 0; code < 0x100; ++code) {
    const auto byte = static_cast<__nv_fp8_storage_t>(code);
    const float e4m3 = half_value(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3));
    const float e5m2 = half_value(__nv_cvt_fp8_to_halfraw(byte, __NV_E5M2));
    EXPECT_EQ(std::isnan(decode<kE4M3>(code)), std::isnan(e4m3)) << code;
    EXPECT_EQ(std::isnan(decode<kE5M2>(code)), std::isnan(e5m2)) << code;
    if (!std::isnan(e4m3)) {
      EXPECT_EQ(bits_of(decode<kE4M3>(code)), bits_of(e4m3)) << code;
    }
    if (!std::isnan(e5m2)) {
      EXPECT_EQ(bits_of(decode<kE5M2>(code)), bits_of(e5m2)) << code;
    }
  }
  for (uint32_t code = 0; code < 0x10; ++code) {
    const float e2m1 =
        half_value(__nv_cvt_fp4_to_halfraw(static_cast<__nv_fp4_storage_t>(code), __NV_E2M1));
    EXPECT_EQ(bits_of(decode<kE2M1>(code)), bits_of(e2m1)) << code;
  }
}

}  // namespace
}  // namespace mpt::test
