// Code shared by scaled codecs: the lane's part of an update block as runs of elements with one
// scale, block maxima, rounding with a scale per run, and the codec of E4M3 elements with block
// scales.
//
// A block may span several lanes, or a lane several blocks. Only maxima cross lanes, so the result
// does not depend on the number of lanes.
#pragma once

#include "core/float_format.h"
#include "precision/codec.h"
#include "precision/encoded_tensor.h"

namespace mpt {

// Block sizes are multiples of this, so no run crosses the end of a block.
inline constexpr int kBlockQuantum = 16;

template <class G>
struct Runs {
  static constexpr int kPart = LanePart<G>::kSize;
  static constexpr int kSize = kPart < kBlockQuantum ? kPart : kBlockQuantum;
  static constexpr int kCount = kPart / kSize;
};

// Calls f(first, runs) for each block in the part; a block may extend past the part.
template <class G, class F>
MPT_HD void for_blocks(int block, const F& f) {
  using R = Runs<G>;
  const int runs = R::kCount == 1 ? 1 : min_of(block, R::kPart) / R::kSize;
  if (runs == 1)  // constant, so loops in f unroll
    for (int first = 0; first < R::kCount; ++first) f(first, 1);
  else
    for (int first = 0; first < R::kCount; first += runs) f(first, runs);
}

// most[r]: max |x| over the logical elements of run r's block; NaNs are ignored.
template <class G>
MPT_HD void block_maxima(G group, const LanePart<G>& part, int block,
                         const float (&x)[LanePart<G>::kSize], float (&most)[Runs<G>::kCount]) {
  using R = Runs<G>;
  for_blocks<G>(block, [&](int first, int runs) MPT_ALWAYS_INLINE {
    float maximum = 0.0f;
#pragma omp simd reduction(max : maximum)
    for (int k = 0; k < runs * R::kSize; ++k) {
      const int i = first * R::kSize + k;
      const float magnitude = i < part.size ? std::fabs(x[i]) : 0.0f;
      maximum = magnitude > maximum ? magnitude : maximum;
    }
    for (int r = first; r < first + runs; ++r) most[r] = maximum;
  });
  if (block <= R::kPart) return;
  const float maximum = group.reduce_max(most[0], block / R::kPart);
  for (float& of_run : most) of_run = maximum;
}

struct Quotient {
  MPT_HD static float of(float x, float factor) { return x / factor; }
};
struct Product {
  MPT_HD static float of(float x, float factor) { return x * factor; }
};

// by[k] = of_run[run of k]. Spreading first lets callers use one loop over all elements, which
// vectorises well.
template <class G>
MPT_HD void spread(const float (&of_run)[Runs<G>::kCount], float (&by)[Runs<G>::kPart]) {
  using R = Runs<G>;
  for (int r = 0; r < R::kCount; ++r)
    for (int k = 0; k < R::kSize; ++k) by[r * R::kSize + k] = of_run[r];
}

// code[k] = Scaling::of(x[k], its run's factor), rounded according to `dither`; 0 if that is 0.
template <class G, FloatFormat kFormat, class Scaling>
struct RunRounding {
  using R = Runs<G>;

  MPT_HD static void apply(const float (&x)[R::kPart], const float (&factor)[R::kCount],
                           const Dither<R::kPart>& dither, uint8_t (&code)[R::kPart]) {
    float by[R::kPart];
    spread<G>(factor, by);
    if (dither.rounding == Rounding::kNearest) {
#pragma unroll
#pragma omp simd
      for (int k = 0; k < R::kPart; ++k) code[k] = one(x[k], by[k], Nearest{});
    } else {
#pragma unroll
#pragma omp simd
      for (int k = 0; k < R::kPart; ++k) code[k] = one(x[k], by[k], RandomBits{dither.word[k]});
    }
  }

 private:
  template <class D>
  MPT_HD static uint8_t one(float x, float by, D dither) {
    const uint8_t code = round_to<kFormat>(Scaling::of(x, by), dither);
    return by == 0.0f ? uint8_t{0} : code;
  }
};

// x[k] = decode(code[k]) * step of its run.
template <class G, FloatFormat kFormat>
MPT_HD void decode_runs(const uint8_t (&code)[Runs<G>::kPart], const float (&step)[Runs<G>::kCount],
                        float (&x)[Runs<G>::kPart]) {
  float by[Runs<G>::kPart];
  spread<G>(step, by);
#pragma unroll
#pragma omp simd
  for (int k = 0; k < Runs<G>::kPart; ++k) x[k] = decode<kFormat>(code[k]) * by[k];
}

// Reads `count` bytes and zero-fills the rest.
template <int kSize>
MPT_HD void read_bytes(const uint8_t* source, int count, uint8_t (&bytes)[kSize]) {
  using All = Neighbours<uint8_t, kSize>;
  if (All::kAtOnce && count == kSize && All::aligned(source)) {
    const All all = *reinterpret_cast<const All*>(source);
#pragma unroll
    for (int k = 0; k < kSize; ++k) bytes[k] = all.at[k];
    return;
  }
  if (count == kSize) {
    memcpy(bytes, source, kSize);
    return;
  }
#pragma unroll
  for (int k = 0; k < kSize; ++k) bytes[k] = k < count ? source[k] : uint8_t{0};
}
template <int kSize>
MPT_HD void write_bytes(const uint8_t (&bytes)[kSize], int count, uint8_t* target) {
  using All = Neighbours<uint8_t, kSize>;
  if (All::kAtOnce && count == kSize && All::aligned(target)) {
    All all;
#pragma unroll
    for (int k = 0; k < kSize; ++k) all.at[k] = bytes[k];
    *reinterpret_cast<All*>(target) = all;
    return;
  }
  if (count == kSize) {
    memcpy(target, bytes, kSize);
    return;
  }
#pragma unroll
  for (int k = 0; k < kSize; ++k)
    if (k < count) target[k] = bytes[k];
}

// Exponent of the smallest power of two for which elements up to amax do not clip in E4M3, whose
// largest value is 448 = 1.75 2^8.
MPT_HD int e4m3_scale_exponent(float amax) {
  const uint32_t bits = bits_of(amax);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  const bool fits = (bits & 0x7FFFFFu) <= 0x600000u;  // 1.75
  return fits ? exponent - 8 : exponent - 7;
}

// E4M3 codes with a scale per block of a row that depends only on the block's values. Scales
// provides
//   Code                  type of a stored scale
//   block_bits            a block has 2^block_bits elements
//   of(amax)              scale of a block with max |w| = amax
//   step(code)            value of the scale; elements are multiples of it
//   factor(code)          elements are multiplied or divided by it before rounding; 0: codes are 0
//   multiplies()          multiply (true) or divide
template <class Scales>
struct E4M3Blocks : PlainCodec {
  using Code = typename Scales::Code;
  static constexpr float kSmallestRatio = 1.0625f;  // 16 / 15, from 1.875 and 2

  uint8_t* codes = nullptr;
  int64_t code_stride = 0;
  Code* scales = nullptr;
  int64_t scale_stride = 0;
  Scales how;

  E4M3Blocks() = default;
  E4M3Blocks(const EncodedTensor& t, const Scales& scales_of_blocks)
      : codes(t.codes.as<uint8_t>()),
        code_stride(t.codes.stride),
        scales(t.block_scales.as<Code>()),
        scale_stride(t.block_scales.stride),
        how(scales_of_blocks) {}

  [[nodiscard]] MPT_HD ElementMemory memory(BlockSpan span) const {
    return {reinterpret_cast<const std::byte*>(codes + span.row * code_stride + span.col), 8};
  }

  template <class G>
  MPT_HD void load(G group, BlockSpan span, float (&x)[LanePart<G>::kSize]) const {
    using R = Runs<G>;
    const LanePart<G> part(group, span);
    uint8_t code[R::kPart];
    read_bytes(codes + span.row * code_stride + part.col, part.size, code);
    float step[R::kCount];
    for_blocks<G>(block(), [&](int first, int runs) {
      const bool exists = first * R::kSize < part.size;
      const float of_block = exists ? how.step(*scale_at(span, part, first * R::kSize)) : 0.0f;
      for (int r = first; r < first + runs; ++r) step[r] = of_block;
    });
    decode_runs<G, kE4M3>(code, step, x);
  }

  template <class G>
  MPT_HD void store(G group, BlockSpan span, const float (&x)[LanePart<G>::kSize],
                    const Dither<LanePart<G>::kSize>& dither) const {
    using R = Runs<G>;
    const LanePart<G> part(group, span);
    const Encoded<G> encoded(*this, group, part, x, dither);
    write_bytes(encoded.code, part.size, codes + span.row * code_stride + part.col);
    for_blocks<G>(block(), [&](int first, int) {
      const int element = first * R::kSize;
      const bool starts_block = ((part.col + element) & (block() - 1)) == 0;
      if (starts_block && element < part.size)
        *scale_at(span, part, element) = encoded.scale[first];
    });
  }

  template <class G>
  MPT_HD void round(G group, BlockSpan span, float (&x)[LanePart<G>::kSize],
                    const Dither<LanePart<G>::kSize>& dither) const {
    const LanePart<G> part(group, span);
    const Encoded<G> encoded(*this, group, part, x, dither);
    decode_runs<G, kE4M3>(encoded.code, encoded.step, x);
  }

 private:
  template <class G>
  struct Encoded {
    uint8_t code[Runs<G>::kPart];
    Code scale[Runs<G>::kCount];
    float step[Runs<G>::kCount];

    MPT_HD Encoded(const E4M3Blocks& codec, G group, const LanePart<G>& part,
                   const float (&x)[LanePart<G>::kSize], const Dither<LanePart<G>::kSize>& dither) {
      using R = Runs<G>;
      float most[R::kCount], factor[R::kCount];
      block_maxima(group, part, codec.block(), x, most);
      for_blocks<G>(codec.block(), [&](int first, int runs) {
        const Code of_block = codec.how.of(most[first]);
        const float step_of_block = codec.how.step(of_block);
        const float by = codec.how.factor(of_block);
        for (int r = first; r < first + runs; ++r) {
          scale[r] = of_block;
          step[r] = step_of_block;
          factor[r] = by;
        }
      });
      if (codec.how.multiplies())
        RunRounding<G, kE4M3, Product>::apply(x, factor, dither, code);
      else
        RunRounding<G, kE4M3, Quotient>::apply(x, factor, dither, code);
    }
  };

  [[nodiscard]] MPT_HD int block() const { return 1 << how.block_bits; }

  template <class G>
  MPT_HD Code* scale_at(BlockSpan span, const LanePart<G>& part, int element) const {
    return scales + span.row * scale_stride + ((part.col + element) >> how.block_bits);
  }
};

}  // namespace mpt
