// Codecs: decode an update block of weights or optimizer state to FP32, and encode it again.
//
//   load(group, span, x)            fills the lane's part; 0 past the end of the span
//   store(group, span, x, dither)   encodes directly from FP32; writes nothing past the end
//   round(group, span, x, dither)   sets x to what load() would return after store()
//   memory(span)                    address of the elements' codes (scales excluded)
//
// A codec for weights also has
//
//   kSmallestRatio    smallest ratio of adjacent grid values, rounded down;
//                     1 if elements share no scale
//   saturated_blocks(group, span, x)
//                     telemetry: blocks that store() would clip, among those this lane counts
//   kTensorScale      the tensor has an FP32 scale. The first encoding sets it to
//                     first_tensor_scale(amax) and starts from block scales of 0
//   kNeedsMaximum     some options need the tensor's new maximum before storing: storing_with()
//   kRescales         some options move the tensor's scale after an update: must_rescale(),
//                     rescale(), rescaled_tensor_scale(). Block scales are bytes that order
//                     like their values
//   kRelativeScales   additive steps may follow block scales: kBlock, block_scale(),
//                     relative_scales()
//
// A codec derived from PlainCodec only adds kSmallestRatio. If another constant is true, the format
// states which options it applies to: needs_maximum(), rescales().
//
// All lanes of the group must call together. This file holds formats whose elements are
// independent; scaled_blocks.h has code shared by scaled formats, codecs/ one header per weight
// format, and weight_formats.h the list of formats and the codec of a tensor.
#pragma once

#include <type_traits>

#include "core/bf16.h"
#include "core/blocks.h"
#include "core/tensor.h"
#include "precision/dither.h"

namespace mpt {

// Adjacent elements owned by a GPU lane; loaded and stored as one access if aligned.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Neighbours {
  T at[kCount];

  static constexpr bool kAtOnce = sizeof(T) * kCount <= 32;
  MPT_HD static bool aligned(const T* address) {
    return reinterpret_cast<uintptr_t>(address) % alignof(Neighbours) == 0;
  }
};

// Consecutive elements of one row.
struct ElementMemory {
  const std::byte* first;
  int bits;  // per element
};

// Base of codecs whose blocks depend only on their own elements and never clip.
struct PlainCodec {
  static constexpr bool kTensorScale = false, kNeedsMaximum = false, kRescales = false,
                        kRelativeScales = false;

  template <class G>
  MPT_HD static int saturated_blocks(G, BlockSpan, const float (&)[LanePart<G>::kSize]) {
    return 0;
  }
};

// Reads a lane's part; 0 past `size`.
template <class T, int kCount>
MPT_HD void read_neighbours(const T* source, int size, T (&x)[kCount]) {
  using All = Neighbours<T, kCount>;
  if (All::kAtOnce && size == kCount && All::aligned(source)) {
    const All all = *reinterpret_cast<const All*>(source);
#pragma unroll
    for (int k = 0; k < kCount; ++k) x[k] = all.at[k];
  } else {  // constant indices after unrolling, so a GPU keeps x in registers
#pragma unroll
    for (int k = 0; k < kCount; ++k) x[k] = k < size ? source[k] : T{};
  }
}
// Writes a lane's part, but nothing past `size`.
template <class T, int kCount>
MPT_HD void write_neighbours(const T (&x)[kCount], int size, T* target) {
  using All = Neighbours<T, kCount>;
  if constexpr (All::kAtOnce) {
    if (size == kCount && All::aligned(target)) {
      All all;
#pragma unroll
      for (int k = 0; k < kCount; ++k) all.at[k] = x[k];
      *reinterpret_cast<All*>(target) = all;
      return;
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      if (k < size) target[k] = x[k];
  } else {
    memcpy(target, x, size_t(size) * sizeof(T));
  }
}

// fp32 and bf16. FP32 is stored unchanged, regardless of the dither.
struct ElementCodec : PlainCodec {
  static constexpr float kSmallestRatio = 1.0f;

  std::byte* data;
  int64_t stride;  // elements between rows
  DType dtype;     // kF32 or kBF16

  ElementCodec() = default;
  explicit ElementCodec(const Tensor& t) : data(t.data), stride(t.stride), dtype(t.dtype) {
    check(dtype == DType::kF32 || dtype == DType::kBF16, "no elementwise codec for {}",
          name_of(dtype));
  }

  template <class G>
  MPT_HD void load(G group, BlockSpan span, float (&x)[LanePart<G>::kSize]) const {
    const LanePart<G> part(group, span);
    if (dtype == DType::kF32)
      read(at<const float>(span, part), part.size, x);
    else
      read(at<const bf16>(span, part), part.size, x);
  }
  template <class G>
  MPT_HD void store(G group, BlockSpan span, const float (&x)[LanePart<G>::kSize],
                    const Dither<LanePart<G>::kSize>& dither) const {
    const LanePart<G> part(group, span);
    if (dtype == DType::kF32) return write_neighbours(x, part.size, at<float>(span, part));
    bf16 rounded[LanePart<G>::kSize];
    each_rounded(x, dither, [&rounded](int k, bf16 value) { rounded[k] = value; });
    write_neighbours(rounded, part.size, at<bf16>(span, part));
  }
  // T must match dtype.
  template <class T>
  [[nodiscard]] MPT_HD T* elements(BlockSpan span) const {
    return reinterpret_cast<T*>(data) + span.row * stride + span.col;
  }
  // Whether storing with this rounding equals from_float<T>().
  template <class T>
  [[nodiscard]] bool stores(Rounding rounding) const {
    return std::is_same_v<T, float> ? dtype == DType::kF32
                                    : dtype == DType::kBF16 && rounding == Rounding::kNearest;
  }
  [[nodiscard]] MPT_HD ElementMemory memory(BlockSpan span) const {
    const int bytes = dtype == DType::kF32 ? int(sizeof(float)) : int(sizeof(bf16));
    return {data + bytes * (span.row * stride + span.col), 8 * bytes};
  }
  template <class G>
  MPT_HD void round(G, BlockSpan, float (&x)[LanePart<G>::kSize],
                    const Dither<LanePart<G>::kSize>& dither) const {
    if (dtype == DType::kF32) return;
    each_rounded(x, dither, [&x](int k, bf16 value) { x[k] = to_float(value); });
  }

 private:
  // Calls take(k, x[k] rounded to BF16) for every k.
  template <int kSize, class Take>
  MPT_HD static void each_rounded(const float (&x)[kSize], const Dither<kSize>& dither,
                                  const Take& take) {
    if (dither.rounding == Rounding::kNearest) {
#pragma omp simd
      for (int k = 0; k < kSize; ++k) take(k, bf16_nearest(x[k]));
    } else if (dither.carry == Carry::kToInfinity) {
#pragma omp simd
      for (int k = 0; k < kSize; ++k) take(k, bf16_stochastic(x[k], dither.word[k]));
    } else {
#pragma omp simd
      for (int k = 0; k < kSize; ++k) take(k, bf16_stochastic_saturating(x[k], dither.word[k]));
    }
  }
  template <class T, class G>
  MPT_HD T* at(BlockSpan span, const LanePart<G>& part) const {
    return elements<T>({span.row, part.col, part.size});
  }
  template <class T, int kSize>
  MPT_HD static void read(const T* source, int size, float (&x)[kSize]) {
    using All = Neighbours<T, kSize>;
    if (All::kAtOnce && size == kSize && All::aligned(source)) {
      const All all = *reinterpret_cast<const All*>(source);
#pragma unroll
      for (int k = 0; k < kSize; ++k) x[k] = to_float(all.at[k]);
    } else if (size == kSize) {
#pragma omp simd
      for (int k = 0; k < kSize; ++k) x[k] = to_float(source[k]);
    } else {  // constant indices after unrolling, so a GPU keeps x in registers
#pragma unroll
      for (int k = 0; k < kSize; ++k) x[k] = k < size ? to_float(source[k]) : 0.0f;
    }
  }
};

}  // namespace mpt
