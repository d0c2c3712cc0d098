// Weights in E4M3 with one FP16 scale per block of a row (docs/numerics.md "FP8 block weights").
#pragma once

#include <string>

#include <fmt/format.h>

#include "precision/scaled_blocks.h"

namespace mpt {

struct BlockFp8Codec;

struct BlockFp8Weights {
  static constexpr std::string_view kName = "block_fp8";
  using Codec = BlockFp8Codec;
  static constexpr double kNominalBytes = 1;  // excluding scales

  static constexpr EncodedLayout layout(const WeightEncoding& encoding) {
    return {.codes = DType::kE4M3,
            .block_scales = BlockScaleLayout{DType::kF16, encoding.fp8_block_size}};
  }
  static std::string details(const WeightEncoding& encoding) {
    return fmt::format("blocks of {}, {} scales", encoding.fp8_block_size,
                       name_of(encoding.fp8_scale_mode));
  }
};

// FP16 code of the scale for a block with max |w| = amax. kPow2: the smallest power of two for
// which amax does not clip; kFp16: amax / 448, rounded up. 0 for a block of zeros.
MPT_HD uint16_t fp8_block_scale(float amax, Fp8ScaleMode mode) {
  const int power = clamp_to(e4m3_scale_exponent(amax), -24, 15);
  const uint16_t scale = mode == Fp8ScaleMode::kPow2 ? fp16_nearest(power_of_two(power))
                                                     : fp16_up(amax / kE4M3.max_value);
  return amax == 0.0f ? uint16_t{0} : scale;
}

struct BlockFp8Scales {
  using Code = uint16_t;
  int block_bits = 0;
  Fp8ScaleMode mode = Fp8ScaleMode::kPow2;

  [[nodiscard]] MPT_HD Code of(float amax) const { return fp8_block_scale(amax, mode); }
  MPT_HD static float step(Code code) { return fp16_decode(code); }
  // Dividing by a power of two equals multiplying by its reciprocal.
  [[nodiscard]] MPT_HD bool multiplies() const { return mode == Fp8ScaleMode::kPow2; }
  [[nodiscard]] MPT_HD float factor(Code code) const {
    return multiplies() && code != 0 ? 1.0f / step(code) : step(code);
  }

  static int bits_of_block(int64_t block) {
    check(block >= kBlockQuantum && block <= kUpdateBlock && (block & (block - 1)) == 0,
          "fp8_block_size {}; expected 16, 32, 64, 128 or 256", block);
    int bits = 0;
    while (int64_t{1} << bits < block) ++bits;
    return bits;
  }
};

struct BlockFp8Codec : E4M3Blocks<BlockFp8Scales> {
  BlockFp8Codec() = default;
  explicit BlockFp8Codec(const EncodedTensor& t)
      : E4M3Blocks(t, {.block_bits = BlockFp8Scales::bits_of_block(t.encoding.fp8_block_size),
                       .mode = t.encoding.fp8_scale_mode}) {
    check_format(t, BlockFp8Weights::kName);
  }
};

}  // namespace mpt
