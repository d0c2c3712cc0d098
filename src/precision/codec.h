// Codecs: how an update block of weights or optimizer state is decoded to FP32 and encoded again.
//
//   load(group, span, x)            fills the lane's part; 0 beyond its end
//   store(group, span, x, dither)   encodes it from FP32 directly, and writes nothing beyond its end
//   round(group, span, x, dither)   x becomes what load() would give after store(); writes nothing
//   memory(span)                    where its elements lie, without what they share
//
// A codec of weights says besides
//
//   kSmallestRatio    the smallest factor between neighbouring values of its grid, rounded down; 1 where
//                     elements share no scale
//   saturated_blocks(group, span, x)
//                     for telemetry: how many blocks store() would clip, of those that this lane counts
//   kTensorScale      the tensor has an FP32 scale, at first first_tensor_scale(amax) with blocks' scales 0
//   kNeedsMaximum     options may ask for the tensor's new maximum before it is stored: storing_with()
//   kRescales          options may let the tensor's scale move behind an update: must_rescale(), rescale(),
//                     rescaled_tensor_scale(); scales of blocks are bytes in the order of their values
//   kRelativeScales   additive steps may follow scales of blocks: kBlock, block_scale(), relative_scales()
//
// One that derives from PlainCodec says the first alone. Where another constant is true, the format says for
// which of its options it holds: needs_maximum(), rescales().
//
// All lanes of the group must call together. This file: formats whose elements stand alone; scaled_blocks.h:
// what those share whose elements have common scales; codecs/: one header for each way to store weights;
// weight_formats.h: their list, and the codec of a tensor.
#pragma once

#include <type_traits>

#include "core/bf16.h"
#include "core/blocks.h"
#include "core/tensor.h"
#include "precision/dither.h"

namespace mpt {

// As many neighbours as a lane of a GPU owns, moved at once where they are aligned for it.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Neighbours {
  T at[kCount];

  static constexpr bool kAtOnce = sizeof(T) * kCount <= 32;
  MPT_HD static bool aligned(const T* address) {
    return reinterpret_cast<uintptr_t>(address) % alignof(Neighbours) == 0;
  }
};

// Elements of one row, from the first one on.
struct ElementMemory {
  const std::byte* first;
  int bits;  // of an element
};

// Of codecs whose blocks follow from their own elements alone, and never clip.
struct PlainCodec {
  static constexpr bool kTensorScale = false, kNeedsMaximum = false, kRescales = false,
                        kRelativeScales = false;

  template <class G>
  MPT_HD static int saturated_blocks(G, BlockSpan, const float (&)[LanePart<G>::kSize]) {
    return 0;
  }
};

// fp32 and bf16. FP32 is stored as it is, whatever the dither.
struct ElementCodec : PlainCodec {
  static constexpr float kSmallestRatio = 1.0f;

  std::byte* data;
  int64_t stride;  // elements between rows
  DType dtype;     // kF32 or kBF16

  ElementCodec() = default;
  explicit ElementCodec(const Tensor& t) : data(t.data), stride(t.stride), dtype(t.dtype) {
    check(dtype == DType::kF32 || dtype == DType::kBF16, "no elementwise codec for {}", name_of(dtype));
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
    if (dtype == DType::kF32) return write(x, part.size, at<float>(span, part));
    bf16 rounded[LanePart<G>::kSize];
    each_rounded(x, dither, [&rounded](int k, bf16 value) { rounded[k] = value; });
    write(rounded, part.size, at<bf16>(span, part));
  }
  // Of type T, which is what dtype says.
  template <class T>
  [[nodiscard]] MPT_HD T* elements(BlockSpan span) const {
    return reinterpret_cast<T*>(data) + span.row * stride + span.col;
  }
  // Storing with this rounding is from_float<T>().
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
  // take(k, x[k] as BF16).
  template <int kSize, class Take>
  MPT_HD static void each_rounded(const float (&x)[kSize], const Dither<kSize>& dither, const Take& take) {
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
    } else {  // every index of x a constant after unrolling, so that a GPU keeps it in registers
#pragma unroll
      for (int k = 0; k < kSize; ++k) x[k] = k < size ? to_float(source[k]) : 0.0f;
    }
  }
  template <class T, int kSize>
  MPT_HD static void write(const T (&x)[kSize], int size, T* target) {
    using All = Neighbours<T, kSize>;
    if constexpr (All::kAtOnce) {
      if (size == kSize && All::aligned(target)) {
        All all;
#pragma unroll
        for (int k = 0; k < kSize; ++k) all.at[k] = x[k];
        *reinterpret_cast<All*>(target) = all;
        return;
      }
#pragma unroll
      for (int k = 0; k < kSize; ++k)
        if (k < size) target[k] = x[k];
    } else {
      memcpy(target, x, size_t(size) * sizeof(T));
    }
  }
};

}  // namespace mpt
