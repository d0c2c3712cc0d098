// Weights in E2M1 with an E4M3 scale per 16 elements of a row and an FP32 scale per tensor
// (docs/numerics.md "NVFP4 weights"; `live` is Transformer Engine's arithmetic).
#pragma once

#include <cfloat>
#include <string>

#include <fmt/format.h>

#include "precision/scaled_blocks.h"

namespace mpt {

inline constexpr int64_t kNvfp4Block = 16;

struct Nvfp4Codec;

struct Nvfp4Weights {
  static constexpr std::string_view kName = "nvfp4";
  using Codec = Nvfp4Codec;
  static constexpr double kNominalBytes = 0.5 + 1.0 / double(kNvfp4Block);

  // Two elements per byte, the even one in the low nibble.
  static constexpr EncodedLayout layout(const WeightEncoding&) {
    return {.codes = DType::kU8,
            .elements_per_code = 2,
            .whole = kNvfp4Block,
            .block_scales = BlockScaleLayout{DType::kE4M3, kNvfp4Block},
            .tensor_scale = true};
  }
  static std::string details(const WeightEncoding& encoding) {
    return fmt::format("{} scales", name_of(encoding.nvfp4_scale_mode));
  }
  static bool needs_maximum(const WeightEncoding& encoding) {
    return encoding.nvfp4_scale_mode == Nvfp4ScaleMode::kLive;
  }
  static bool rescales(const WeightEncoding& encoding) {
    return encoding.nvfp4_scale_mode == Nvfp4ScaleMode::kSticky;
  }
};

// --- sticky: every scale moves by powers of two only ---------------------------------------------
namespace nvfp4_sticky {

// Codes of E4M3 block scales.
inline constexpr uint8_t kDoublesBelow = 0x77;   // 224 is the largest that can double
inline constexpr uint8_t kHalvesFrom = 0x10;     // 2^-5; its half is still normal
inline constexpr uint8_t kQuartersFrom = 0x18;   // 2^-4; its quarter is still normal
inline constexpr uint8_t kMostAfterStep = 0x6E;  // 112: two doublings below the largest

// The tensor's scale at its first encoding: the smallest power of two for which every block scale
// is at most 112. The lower bound keeps every step a normal FP32 value.
MPT_HD float first_tensor_scale(float amax) {
  const uint32_t bits = bits_of(amax);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  const bool fits = (bits & 0x7FFFFFu) <= 0x280000u;  // 1.3125, the mantissa of 672
  const int power = max_of(fits ? exponent - 9 : exponent - 8, -117);
  return amax == 0.0f ? 1.0f : power_of_two(power);
}

// The distance between codes 0 and 0.5 is half of it; exact in FP32.
MPT_HD float step_of(uint32_t scale, float tensor_scale) {
  return decode<kE4M3>(scale) * tensor_scale;
}

MPT_HD uint8_t doubled(uint8_t scale) {
  return static_cast<uint8_t>(scale < 8 ? 2 * scale : scale + 8);
}
MPT_HD uint8_t halved(uint8_t scale) { return static_cast<uint8_t>(scale - 8); }

// Whether a block with max |w| = amax needs a larger scale, or can use a smaller one.
MPT_HD bool doubles(uint32_t scale, float amax, float tensor_scale) {
  return scale < kDoublesBelow && amax > 6.0f * step_of(scale, tensor_scale);
}
MPT_HD bool halves(uint32_t scale, float amax, float tensor_scale) {
  return scale >= kHalvesFrom && amax <= 3.0f * step_of(scale, tensor_scale);
}

// New scale of a block that had `scale` (0: none yet) and now has max |w| = amax.
MPT_HD uint8_t next_scale(uint8_t scale, float amax, float tensor_scale) {
  if (amax == 0.0f) return scale;
  if (scale == 0) return round_up_to<kE4M3>(amax / (kE2M1.max_value * tensor_scale));
  while (doubles(scale, amax, tensor_scale)) scale = doubled(scale);
  while (halves(scale, amax, tensor_scale)) scale = halved(scale);
  return scale;
}
// Whether next_scale() differs from `scale`, which is rare. Branch-free.
MPT_HD bool moves(uint32_t scale, float amax, float tensor_scale) {
  return (amax != 0.0f) &
         ((scale == 0) | doubles(scale, amax, tensor_scale) | halves(scale, amax, tensor_scale));
}

}  // namespace nvfp4_sticky

// --- live: every encoding derives all scales from the values -------------------------------------
namespace nvfp4_live {

MPT_HD float tensor_multiplier(float tensor_amax) {
  const float multiplier = min_of(2688.0f / tensor_amax, FLT_MAX);
  return tensor_amax == 0.0f || multiplier == 0.0f ? 1.0f : multiplier;
}
MPT_HD uint8_t block_scale(float amax, float tensor_amax) {
  const float per_six = tensor_multiplier(tensor_amax) * float_of(0x3E2AAAABu);  // 1 / 6
  return round_to<kE4M3>(min_of(amax * per_six, FLT_MAX), Nearest{});
}
// Factor applied to elements before rounding; 0 if the block's scale is 0.
MPT_HD float multiplier_of(uint32_t scale, float tensor_amax) {
  const float tensor_step = 1.0f / tensor_multiplier(tensor_amax);
  return scale == 0 ? 0.0f : min_of(1.0f / (decode<kE4M3>(scale) * tensor_step), FLT_MAX);
}
MPT_HD float step_of(uint32_t scale, float tensor_amax) {
  return (decode<kE4M3>(scale) * tensor_amax) * float_of(0x39C30C31u);  // 1 / 2688
}

}  // namespace nvfp4_live

// The tensor's FP32 scale is read through pointers, so that the device can change it without the
// host.
//   sticky   A power of two. store() reads the old block scale from memory and writes the new one.
//            load_scale and store_scale are the same, and only CodecOps::rescale() changes it.
//   live     max|w| of the tensor. store() needs the maximum of the NEW weights before it stores
//            any: a first pass over the update blocks computes max|w'| and writes nothing, a second
//            repeats the update and stores. load_scale belongs to the codes in memory, store_scale
//            to the new ones. The caller copies store_scale to the tensor's scale once all update
//            blocks are stored.
struct Nvfp4Codec {
  static constexpr bool kTensorScale = true, kNeedsMaximum = true, kRescales = true,
                        kRelativeScales = true;
  static constexpr float kSmallestRatio = 1.25f;  // rounded down from 4 / 3 (3 and 4)
  static constexpr int64_t kBlock = kNvfp4Block;

  uint8_t* codes = nullptr;
  int64_t code_stride = 0;  // bytes
  uint8_t* scales = nullptr;
  int64_t scale_stride = 0;
  const float* load_scale = nullptr;
  const float* store_scale = nullptr;
  Nvfp4ScaleMode mode = Nvfp4ScaleMode::kSticky;

  Nvfp4Codec() = default;
  // Loads and stores with the tensor's scale.
  explicit Nvfp4Codec(const EncodedTensor& t)
      : codes(t.codes.as<uint8_t>()),
        code_stride(t.codes.stride),
        scales(t.block_scales.as<uint8_t>()),
        scale_stride(t.block_scales.stride),
        load_scale(t.tensor_scale.as<float>()),
        store_scale(load_scale),
        mode(t.encoding.nvfp4_scale_mode) {
    check_format(t, Nvfp4Weights::kName);
  }
  // Stores with a different tensor scale: second pass of live.
  [[nodiscard]] Nvfp4Codec storing_with(const float* tensor_amax) const {
    Nvfp4Codec codec = *this;
    codec.store_scale = tensor_amax;
    return codec;
  }

  [[nodiscard]] MPT_HD ElementMemory memory(BlockSpan span) const {
    return {reinterpret_cast<const std::byte*>(codes + span.row * code_stride + span.col / 2), 4};
  }

  template <class G>
  MPT_HD void load(G group, BlockSpan span, float (&x)[LanePart<G>::kSize]) const {
    using R = Runs<G>;
    const LanePart<G> part(group, span);
    uint8_t bytes[R::kPart / 2], code[R::kPart];
    read_bytes(codes_at(span, part), (part.size + 1) / 2, bytes);
    unpack(bytes, code);
    float step[R::kCount];
    const float tensor = *load_scale;
    for (int r = 0; r < R::kCount; ++r)
      step[r] = r * R::kSize < part.size ? step_of(*scale_at(span, part, r), tensor) : 0.0f;
    decode_runs<G, kE2M1>(code, step, x);
  }

  // Writes no bytes past the last element, even within its block; the unused nibble of the last
  // byte is 0.
  template <class G>
  MPT_HD void store(G group, BlockSpan span, const float (&x)[LanePart<G>::kSize],
                    const Dither<LanePart<G>::kSize>& dither) const {
    using R = Runs<G>;
    const LanePart<G> part(group, span);
    const Scales<G> next(*this, group, span, part, x);
    uint8_t code[R::kPart], bytes[R::kPart / 2];
    round_codes(next, x, dither, code);
#pragma unroll
    for (int k = 0; k < R::kPart; ++k) code[k] = k < part.size ? code[k] : uint8_t{0};
    pack(code, bytes);
    write_bytes(bytes, (part.size + 1) / 2, codes_at(span, part));
    for (int r = 0; r < R::kCount; ++r)
      if (owns_scale<G>(group) && r * R::kSize < part.size)
        *scale_at(span, part, r) = static_cast<uint8_t>(next.code[r]);
  }

  template <class G>
  MPT_HD void round(G group, BlockSpan span, float (&x)[LanePart<G>::kSize],
                    const Dither<LanePart<G>::kSize>& dither) const {
    using R = Runs<G>;
    const LanePart<G> part(group, span);
    const Scales<G> next(*this, group, span, part, x);
    uint8_t code[R::kPart];
    round_codes(next, x, dither, code);
    float step[R::kCount];
    for (int r = 0; r < R::kCount; ++r) step[r] = step_of(next.code[r], next.tensor);
    decode_runs<G, kE2M1>(code, step, x);
  }

  // The tensor's scale at its first encoding, from its amax.
  [[nodiscard]] MPT_HD float first_tensor_scale(float amax) const {
    return mode == Nvfp4ScaleMode::kSticky ? nvfp4_sticky::first_tensor_scale(amax) : amax;
  }

  // A block's scale without the tensor's: a multiple of 2^-9, at most 448. FP64 sums over up to
  // 2^31 blocks are exact in any order.
  [[nodiscard]] MPT_HD float block_scale(int64_t row, int64_t block) const {
    return decode<kE4M3>(scales[row * scale_stride + block]);
  }
  // Each element's stored block scale divided by *mean. All 1 if `mean` is null or *mean is 0; also
  // 1 past the end of the part.
  template <class G>
  MPT_HD void relative_scales(G group, BlockSpan span, const float* mean,
                              float (&x)[LanePart<G>::kSize]) const {
    using R = Runs<G>;
    const LanePart<G> part(group, span);
    const float one = mean == nullptr ? 0.0f : *mean;
    float relative[R::kCount];
    for (int r = 0; r < R::kCount; ++r)
      relative[r] = one > 0.0f && r * R::kSize < part.size
                        ? decode<kE4M3>(*scale_at(span, part, r)) / one
                        : 1.0f;
    spread<G>(relative, x);
  }

  // Telemetry, call before store() of the same x: number of blocks whose scale this lane owns and
  // whose maximum exceeds 6 steps, so that store() clips it. The tensor's count is the sum over
  // lanes and update blocks. Rare for sticky; about half of all blocks for live, whose scales round
  // to nearest.
  template <class G>
  MPT_HD int saturated_blocks(G group, BlockSpan span, const float (&x)[LanePart<G>::kSize]) const {
    using R = Runs<G>;
    const LanePart<G> part(group, span);
    const Scales<G> next(*this, group, span, part, x);
    int count = 0;
    for (int r = 0; r < R::kCount; ++r) {
      const bool clipped = next.most[r] > kE2M1.max_value * step_of(next.code[r], next.tensor);
      count += clipped && owns_scale<G>(group) && r * R::kSize < part.size;
    }
    return count;
  }

  // End of a step, sticky: if the largest scale byte is too close to the top, multiplies the
  // tensor's scale by 4 and divides block scales by 4.
  MPT_HD static bool must_rescale(float largest_scale) {
    return largest_scale > float(nvfp4_sticky::kMostAfterStep);
  }
  MPT_HD static float rescaled_tensor_scale(float scale) { return 4.0f * scale; }
  // Rescales one update block. Decoded values are unchanged, except in blocks whose scale is too
  // small to be divided by 4: those are rounded to nearest again.
  template <class G>
  MPT_HD void rescale(G group, BlockSpan span) const {
    using R = Runs<G>;
    const LanePart<G> part(group, span);
    float x[R::kPart], step[R::kCount];
    load(group, span, x);
    uint8_t bytes[R::kPart / 2], code[R::kPart], rounded[R::kPart], scale[R::kCount],
        old[R::kCount];
    read_bytes(codes_at(span, part), (part.size + 1) / 2, bytes);
    unpack(bytes, code);
    for (int r = 0; r < R::kCount; ++r) {
      old[r] = old_scale(group, span, part, r);
      scale[r] = quarter_of(old[r]);
      step[r] = nvfp4_sticky::step_of(scale[r], rescaled_tensor_scale(*load_scale));
    }
    Dither<R::kPart> nearest;
    nearest.rounding = Rounding::kNearest;
    RunRounding<G, kE2M1, Quotient>::apply(x, step, nearest, rounded);
    for (int k = 0; k < R::kPart; ++k)
      code[k] = old[k / R::kSize] < nvfp4_sticky::kQuartersFrom ? rounded[k] : code[k];
    pack(code, bytes);
    write_bytes(bytes, (part.size + 1) / 2, codes_at(span, part));
    for (int r = 0; r < R::kCount; ++r)
      if (owns_scale<G>(group) && r * R::kSize < part.size) *scale_at(span, part, r) = scale[r];
  }

 private:
  static constexpr int kBlockBits = 4;
  static_assert(kNvfp4Block == 1 << kBlockBits && kNvfp4Block == kBlockQuantum);

  // Block scales for encoding x.
  template <class G>
  struct Scales {
    float tensor;
    float most[Runs<G>::kCount];
    uint32_t code[Runs<G>::kCount];  // wide, so that arithmetic on it vectorises

    MPT_HD Scales(const Nvfp4Codec& codec, G group, BlockSpan span, const LanePart<G>& part,
                  const float (&x)[LanePart<G>::kSize])
        : tensor(*codec.store_scale) {
      constexpr int kCount = Runs<G>::kCount;
      block_maxima(group, part, kNvfp4Block, x, most);
      if (codec.mode == Nvfp4ScaleMode::kLive) {
        for (int r = 0; r < kCount; ++r) code[r] = nvfp4_live::block_scale(most[r], tensor);
        return;
      }
      for (int r = 0; r < kCount; ++r) code[r] = codec.old_scale(group, span, part, r);
      int moving = 0;
#pragma omp simd reduction(+ : moving)
      for (int r = 0; r < kCount; ++r) moving += nvfp4_sticky::moves(code[r], most[r], tensor);
      for (int r = 0; moving > 0 && r < kCount; ++r)
        code[r] = nvfp4_sticky::next_scale(static_cast<uint8_t>(code[r]), most[r], tensor);
    }
  };

  template <class G>
  MPT_HD void round_codes(const Scales<G>& next, const float (&x)[LanePart<G>::kSize],
                          const Dither<LanePart<G>::kSize>& dither,
                          uint8_t (&code)[LanePart<G>::kSize]) const {
    float factor[Runs<G>::kCount];
    if (mode == Nvfp4ScaleMode::kSticky) {
      for (int r = 0; r < Runs<G>::kCount; ++r)
        factor[r] = nvfp4_sticky::step_of(next.code[r], next.tensor);
      RunRounding<G, kE2M1, Quotient>::apply(x, factor, dither, code);
    } else {
      for (int r = 0; r < Runs<G>::kCount; ++r)
        factor[r] = nvfp4_live::multiplier_of(next.code[r], next.tensor);
      RunRounding<G, kE2M1, Product>::apply(x, factor, dither, code);
    }
  }

  MPT_HD float step_of(uint32_t scale, float tensor) const {
    return mode == Nvfp4ScaleMode::kSticky ? nvfp4_sticky::step_of(scale, tensor)
                                           : nvfp4_live::step_of(scale, tensor);
  }
  MPT_HD static uint8_t quarter_of(uint8_t scale) {
    if (scale >= nvfp4_sticky::kQuartersFrom) return static_cast<uint8_t>(scale - 0x10);
    return round_up_to<kE4M3>(decode<kE4M3>(scale) / 4.0f);
  }

  // The lane that reads a block's old scale also writes the new one. Lanes sharing the block get it
  // through the maximum, which orders the read before the write.
  template <class G>
  MPT_HD static bool owns_scale(G group) {
    return (group.lane() * LanePart<G>::kSize) % kNvfp4Block == 0;
  }
  template <class G>
  MPT_HD uint8_t old_scale(G group, BlockSpan span, const LanePart<G>& part, int run) const {
    const bool mine = owns_scale<G>(group) && run * Runs<G>::kSize < part.size;
    const uint8_t scale = mine ? *scale_at(span, part, run) : uint8_t{0};
    if constexpr (LanePart<G>::kSize >= kNvfp4Block) return scale;
    return static_cast<uint8_t>(
        group.reduce_max(float(scale), int(kNvfp4Block) / LanePart<G>::kSize));
  }

  template <class G>
  MPT_HD uint8_t* codes_at(BlockSpan span, const LanePart<G>& part) const {
    return codes + span.row * code_stride + part.col / 2;
  }
  template <class G>
  MPT_HD uint8_t* scale_at(BlockSpan span, const LanePart<G>& part, int run) const {
    return scales + span.row * scale_stride + ((part.col + run * Runs<G>::kSize) >> kBlockBits);
  }

  template <int kBytes>
  MPT_HD static void unpack(const uint8_t (&bytes)[kBytes], uint8_t (&code)[2 * kBytes]) {
#pragma unroll
#pragma omp simd
    for (int i = 0; i < kBytes; ++i) {
      code[2 * i] = bytes[i] & 0xF;
      code[2 * i + 1] = bytes[i] >> 4;
    }
  }
  template <int kBytes>
  MPT_HD static void pack(const uint8_t (&code)[2 * kBytes], uint8_t (&bytes)[kBytes]) {
#pragma unroll
#pragma omp simd
    for (int i = 0; i < kBytes; ++i)
      bytes[i] = static_cast<uint8_t>(code[2 * i] | code[2 * i + 1] << 4);
  }
};

}  // namespace mpt
