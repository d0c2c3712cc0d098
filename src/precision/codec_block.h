// What the codecs of scaled formats share: a lane's part of a unit as runs of elements under one scale, the
// maxima of blocks, and rounding by a scale per run.
//
// A block may span several lanes or a lane several blocks. Only maxima cross lanes, so any number of lanes
// gives the same bits.
#pragma once

#include "core/float_format.h"
#include "precision/codec.h"
#include "precision/encoded_tensor.h"

namespace mpt {

// Blocks are multiples of this, so that no run crosses a block's end.
inline constexpr int kBlockQuantum = 16;

template <class G>
struct Runs {
  static constexpr int kPart = LanePart<G>::kSize;
  static constexpr int kSize = kPart < kBlockQuantum ? kPart : kBlockQuantum;
  static constexpr int kCount = kPart / kSize;
};

// f(first, runs) for the runs of each block, or of its share in the part.
template <class G, class F>
MPT_HD void for_blocks(int block, const F& f) {
  using R = Runs<G>;
  const int runs = R::kCount == 1 ? 1 : min_of(block, R::kPart) / R::kSize;
  if (runs == 1)  // a constant for f, whose loops unroll
    for (int first = 0; first < R::kCount; ++first) f(first, 1);
  else
    for (int first = 0; first < R::kCount; first += runs) f(first, runs);
}

// most[r]: the maximum of |x| over the logical elements of the block that run r lies in; NaNs are ignored.
template <class G>
MPT_HD void block_maxima(G group, const LanePart<G>& part, int block, const float (&x)[LanePart<G>::kSize],
                         float (&most)[Runs<G>::kCount]) {
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

// by[k]: the value of the run that element k is in. One loop over all elements is what vectorises well.
template <class G>
MPT_HD void spread(const float (&of_run)[Runs<G>::kCount], float (&by)[Runs<G>::kPart]) {
  using R = Runs<G>;
  for (int r = 0; r < R::kCount; ++r)
    for (int k = 0; k < R::kSize; ++k) by[r * R::kSize + k] = of_run[r];
}

// code[k] = Scaling::of(x[k], factor of its run), rounded as the dither says; 0 where the factor is 0.
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

// x[k] = the value of code[k] times the step of its run.
template <class G, FloatFormat kFormat>
MPT_HD void decode_runs(const uint8_t (&code)[Runs<G>::kPart], const float (&step)[Runs<G>::kCount],
                        float (&x)[Runs<G>::kPart]) {
  float by[Runs<G>::kPart];
  spread<G>(step, by);
#pragma unroll
#pragma omp simd
  for (int k = 0; k < Runs<G>::kPart; ++k) x[k] = decode<kFormat>(code[k]) * by[k];
}

// The first `count` of the bytes, zeros after them.
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

}  // namespace mpt
