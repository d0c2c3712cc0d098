// Weights in MXFP8 (OCP Microscaling formats 1.0): E4M3 elements with one E8M0 scale per 32
// elements of a row, the smallest power of two for which the largest element does not clip
// (docs/numerics.md "MXFP8 weights").
#pragma once

#include <string>

#include <fmt/format.h>

#include "precision/scaled_blocks.h"

namespace mpt {

struct Mxfp8Codec;

struct Mxfp8Weights {
  static constexpr std::string_view kName = "mxfp8";
  using Codec = Mxfp8Codec;
  static constexpr int64_t kBlock = 32;
  static constexpr double kNominalBytes = 1 + 1.0 / double(kBlock);

  static constexpr EncodedLayout layout(const WeightEncoding&) {
    return {.codes = DType::kE4M3, .block_scales = BlockScaleLayout{DType::kE8M0, kBlock}};
  }
  static std::string details(const WeightEncoding&) {
    return fmt::format("blocks of {}, {} scales", kBlock, name_of(DType::kE8M0));
  }
};

struct Mxfp8Scales {
  using Code = uint8_t;
  static constexpr int block_bits = 5;
  static_assert(Mxfp8Weights::kBlock == 1 << block_bits);
  // Upper bound of new scales: 448 times a larger one overflows FP32.
  static constexpr int kMostExponent = 119;

  // A block of zeros gets the smallest scale.
  MPT_HD static Code of(float amax) {
    return e8m0_code(min_of(e4m3_scale_exponent(amax), kMostExponent));
  }
  MPT_HD static float step(Code code) { return e8m0_decode(code); }
  MPT_HD static constexpr bool multiplies() { return true; }
  MPT_HD static float factor(Code code) { return e8m0_decode(static_cast<Code>(254 - code)); }
};

struct Mxfp8Codec : E4M3Blocks<Mxfp8Scales> {
  Mxfp8Codec() = default;
  explicit Mxfp8Codec(const EncodedTensor& t) : E4M3Blocks(t, {}) {
    check_format(t, Mxfp8Weights::kName);
  }
};

}  // namespace mpt
