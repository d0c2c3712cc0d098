// Master weights in E4M3 with one FP16 scale per block of a row (docs/numerics.md "FP8 block weights").
#pragma once

#include "precision/codec_block.h"

namespace mpt {

// The FP16 code of a block's scale, from the maximum of |w| over the block. kPow2: the smallest power of two
// under which the maximum does not clip; kFp16: amax / 448, rounded up. 0 for a block of zeros.
MPT_HD uint16_t fp8_block_scale(float amax, Fp8ScaleMode mode) {
  const uint32_t bits = bits_of(amax);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  const bool fits = (bits & 0x7FFFFFu) <= 0x600000u;  // 1.75, the mantissa of 448
  const int power = clamp_to(fits ? exponent - 8 : exponent - 7, -24, 15);
  const uint16_t scale =
      mode == Fp8ScaleMode::kPow2 ? fp16_nearest(power_of_two(power)) : fp16_up(amax / kE4M3.max_value);
  return amax == 0.0f ? uint16_t{0} : scale;
}

struct BlockFp8Codec {
  uint8_t* codes = nullptr;
  int64_t code_stride = 0;
  uint16_t* scales = nullptr;
  int64_t scale_stride = 0;
  int block_bits = 0;  // a block has 2^block_bits elements
  Fp8ScaleMode mode = Fp8ScaleMode::kPow2;

  BlockFp8Codec() = default;
  explicit BlockFp8Codec(const EncodedTensor& t)
      : codes(t.codes.as<uint8_t>()),
        code_stride(t.codes.stride),
        scales(t.block_scales.as<uint16_t>()),
        scale_stride(t.block_scales.stride),
        mode(t.encoding.fp8_scale_mode) {
    check(t.encoding.format == WeightFormat::kBlockFp8, "block_fp8 codec for {} weights",
          name_of(t.encoding.format));
    const int64_t block = t.encoding.fp8_block_size;
    check(block >= kBlockQuantum && block <= kUnit && (block & (block - 1)) == 0,
          "fp8_block_size {}: 16, 32, 64, 128 or 256", block);
    while (int64_t{1} << block_bits < block) ++block_bits;
  }

  [[nodiscard]] MPT_HD ElementMemory memory(UnitSpan unit) const {
    return {reinterpret_cast<const std::byte*>(codes + unit.row * code_stride + unit.col), 8};
  }

  template <class G>
  MPT_HD void load(G group, UnitSpan unit, float (&x)[LanePart<G>::kSize]) const {
    using R = Runs<G>;
    const LanePart<G> part(group, unit);
    uint8_t code[R::kPart];
    read_bytes(codes + unit.row * code_stride + part.col, part.size, code);
    float step[R::kCount];
    for_blocks<G>(block(), [&](int first, int runs) {
      const bool exists = first * R::kSize < part.size;
      const float of_block = exists ? fp16_decode(*scale_at(unit, part, first * R::kSize)) : 0.0f;
      for (int r = first; r < first + runs; ++r) step[r] = of_block;
    });
    decode_runs<G, kE4M3>(code, step, x);
  }

  template <class G>
  MPT_HD void store(G group, UnitSpan unit, const float (&x)[LanePart<G>::kSize],
                    const Dither<LanePart<G>::kSize>& dither) const {
    using R = Runs<G>;
    const LanePart<G> part(group, unit);
    const Encoded<G> encoded(*this, group, part, x, dither);
    write_bytes(encoded.code, part.size, codes + unit.row * code_stride + part.col);
    for_blocks<G>(block(), [&](int first, int) {
      const int element = first * R::kSize;
      const bool starts_block = ((part.col + element) & (block() - 1)) == 0;
      if (starts_block && element < part.size) *scale_at(unit, part, element) = encoded.scale[first];
    });
  }

  template <class G>
  MPT_HD void round(G group, UnitSpan unit, float (&x)[LanePart<G>::kSize],
                    const Dither<LanePart<G>::kSize>& dither) const {
    const LanePart<G> part(group, unit);
    const Encoded<G> encoded(*this, group, part, x, dither);
    decode_runs<G, kE4M3>(encoded.code, encoded.step, x);
  }

 private:
  template <class G>
  struct Encoded {
    uint8_t code[Runs<G>::kPart];
    uint16_t scale[Runs<G>::kCount];
    float step[Runs<G>::kCount];

    MPT_HD Encoded(const BlockFp8Codec& codec, G group, const LanePart<G>& part,
                   const float (&x)[LanePart<G>::kSize], const Dither<LanePart<G>::kSize>& dither) {
      using R = Runs<G>;
      const bool pow2 = codec.mode == Fp8ScaleMode::kPow2;
      float most[R::kCount], factor[R::kCount];
      block_maxima(group, part, codec.block(), x, most);
      for_blocks<G>(codec.block(), [&](int first, int runs) {
        const uint16_t of_block = fp8_block_scale(most[first], codec.mode);
        const float step_of_block = fp16_decode(of_block);
        const float by = pow2 && of_block != 0 ? 1.0f / step_of_block : step_of_block;
        for (int r = first; r < first + runs; ++r) {
          scale[r] = of_block;
          step[r] = step_of_block;
          factor[r] = by;
        }
      });
      // The quotient by a power of two is the product with its reciprocal.
      if (pow2)
        RunRounding<G, kE4M3, Product>::apply(x, factor, dither, code);
      else
        RunRounding<G, kE4M3, Quotient>::apply(x, factor, dither, code);
    }
  };

  [[nodiscard]] MPT_HD int block() const { return 1 << block_bits; }

  template <class G>
  MPT_HD uint16_t* scale_at(UnitSpan unit, const LanePart<G>& part, int element) const {
    return scales + unit.row * scale_stride + ((part.col + element) >> block_bits);
  }
};

}  // namespace mpt
