// Codecs: how a unit of weights or optimizer state is decoded to FP32 and encoded again.
//
//   load(group, unit, x)            fills the lane's part; 0 beyond its end
//   store(group, unit, x, dither)   encodes it from FP32 directly, and writes nothing beyond its end
//   round(group, unit, x, dither)   x becomes what load() would give after store(); writes nothing
//
// All lanes of the group must call together. This file: formats whose elements stand alone.
#pragma once

#include "core/bf16.h"
#include "core/tensor.h"
#include "precision/dither.h"
#include "precision/unit.h"

namespace mpt {

// fp32 and bf16. FP32 is stored as it is, whatever the dither.
struct ElementCodec {
  std::byte* data;
  int64_t stride;  // elements between rows
  DType dtype;     // kF32 or kBF16

  ElementCodec() = default;
  explicit ElementCodec(const Tensor& t) : data(t.data), stride(t.stride), dtype(t.dtype) {
    check(dtype == DType::kF32 || dtype == DType::kBF16, "no elementwise codec for {}", name_of(dtype));
  }

  template <class G>
  MPT_HD void load(G group, UnitSpan unit, float (&x)[LanePart<G>::kSize]) const {
    const LanePart<G> part(group, unit);
    if (dtype == DType::kF32)
      read(at<const float>(unit, part), part.size, x);
    else
      read(at<const bf16>(unit, part), part.size, x);
  }
  template <class G>
  MPT_HD void store(G group, UnitSpan unit, const float (&x)[LanePart<G>::kSize],
                    const Dither<LanePart<G>::kSize>& dither) const {
    const LanePart<G> part(group, unit);
    if (dtype == DType::kF32) {
      float* const out = at<float>(unit, part);
      for (int k = 0; k < part.size; ++k) out[k] = x[k];
    } else if (dither.rounding == Rounding::kNearest) {
      bf16* const out = at<bf16>(unit, part);
      for (int k = 0; k < part.size; ++k) out[k] = bf16_nearest(x[k]);
    } else {
      bf16* const out = at<bf16>(unit, part);
      for (int k = 0; k < part.size; ++k) out[k] = bf16_stochastic(x[k], dither.word[k]);
    }
  }
  template <class G>
  MPT_HD void round(G, UnitSpan, float (&x)[LanePart<G>::kSize],
                    const Dither<LanePart<G>::kSize>& dither) const {
    if (dtype == DType::kF32) return;
    if (dither.rounding == Rounding::kNearest) {
      for (float& value : x) value = to_float(bf16_nearest(value));
    } else {
      for (int k = 0; k < LanePart<G>::kSize; ++k) x[k] = to_float(bf16_stochastic(x[k], dither.word[k]));
    }
  }

 private:
  template <class T, class G>
  MPT_HD T* at(UnitSpan unit, const LanePart<G>& part) const {
    return reinterpret_cast<T*>(data) + unit.row * stride + part.col;
  }
  template <class T, int kSize>
  MPT_HD static void read(const T* source, int size, float (&x)[kSize]) {
    for (int k = 0; k < size; ++k) x[k] = to_float(source[k]);
    for (int k = size; k < kSize; ++k) x[k] = 0.0f;
  }
};

}  // namespace mpt
