// The operations on FP8 operands and their scales, once, for any Exec.
#pragma once

#include <atomic>
#include <limits>

#include "core/float_format.h"
#include "device/exec.h"
#include "precision/codecs.h"
#include "precision/fp8_ops.h"

namespace mpt {

inline constexpr uint32_t kInfinityBits = 0x7F800000u;

// *most = max(*most, x) for x >= 0, by any number of threads at once.
MPT_HD void fold_max(float* most, float x) {
#ifdef MPT_ON_GPU
  atomicMax(reinterpret_cast<int*>(most),
            __float_as_int(x));  // the order of floats >= 0 is that of their bits
#else
  const std::atomic_ref<float> shared(*most);
  float seen = shared.load(std::memory_order_relaxed);
  while (seen < x && !shared.compare_exchange_weak(seen, x, std::memory_order_relaxed)) {
  }
#endif
}

// The largest |x| of a lane's part; NaNs are ignored.
template <int kSize>
MPT_HD float amax_of(const float (&x)[kSize]) {
  int32_t most = 0;
#pragma omp simd reduction(max : most)
  for (int k = 0; k < kSize; ++k) {
    const uint32_t magnitude = bits_of(x[k]) & 0x7FFFFFFFu;
    const auto bits = static_cast<int32_t>(magnitude > kInfinityBits ? 0u : magnitude);
    most = bits > most ? bits : most;
  }
  return float_of(static_cast<uint32_t>(most));
}

// A unit of the source as the cast sees it.
template <class Codec>
struct Fp8Source {
  UnitGrid grid;
  Codec codec;
  Format through;

  template <class G>
  MPT_HD void load(G group, UnitSpan span, float (&x)[LanePart<G>::kSize]) const {
    codec.load(group, span, x);
    if (through == Format::kF32) return;
#pragma omp simd
    for (int k = 0; k < LanePart<G>::kSize; ++k) x[k] = rounded_to<bf16>(x[k]);
  }
};

template <FloatFormat kFormat, class Codec>
struct CastToFp8 {
  Fp8Source<Codec> source;
  uint8_t* target;
  int64_t stride;
  const float* scale;
  float* amax;                    // null: not gathered
  float *used_scale, *scale_inv;  // null: not noted

  template <class G>
  MPT_HD void operator()(G group, int64_t unit) const {
    constexpr int kSize = LanePart<G>::kSize;
    const UnitSpan span = source.grid.span(unit);
    float x[kSize];
    source.load(group, span, x);
    if (amax != nullptr) {
      const float most = group.reduce_max(amax_of(x));
      if (group.lane() == 0) fold_max(amax, most);
    }
    const float factor = *scale;
    uint8_t code[kSize];
#pragma omp simd
    for (int k = 0; k < kSize; ++k) code[k] = round_to<kFormat>(x[k] * factor, Nearest{});
    const LanePart<G> part(group, span);
    uint8_t* const out = target + span.row * stride + part.col;
    if (part.size == kSize)
      memcpy(out, code, kSize);
    else
      for (int k = 0; k < part.size; ++k) out[k] = code[k];
    if (unit != 0 || group.lane() != 0 || used_scale == nullptr) return;
    *used_scale = factor;
    *scale_inv = 1.0f / factor;
  }
};

template <class Codec>
struct GatherAmax {
  Fp8Source<Codec> source;
  float* amax;

  template <class G>
  MPT_HD void operator()(G group, int64_t unit) const {
    float x[LanePart<G>::kSize];
    source.load(group, source.grid.span(unit), x);
    const float most = group.reduce_max(amax_of(x));
    if (group.lane() == 0) fold_max(amax, most);
  }
};

// The scale that makes `amax` the largest value; `otherwise` where there is no such scale.
MPT_HD float fp8_scale(float amax, float max_value, float otherwise) {
  const bool usable = amax > 0.0f && bits_of(amax) < kInfinityBits;
  const float scale = usable ? max_value / amax : otherwise;
  return bits_of(scale) == kInfinityBits ? std::numeric_limits<float>::max() : scale;
}

struct CurrentScale {
  float *scale, *amax;
  float max_value;

  MPT_HD void operator()(int64_t) const {
    *scale = fp8_scale(*amax, max_value, 1.0f);
    *amax = 0.0f;
  }
};

// One slot: NUMERICS "Scale update". A slot that saw nothing, or only zeros, keeps its history.
struct RollSlot {
  float* history;
  int64_t length, slots;
  float *scale, *last_amax;
  int32_t* frozen;
  float scaled_max;
  AmaxAlgorithm algorithm;

  MPT_HD void operator()(int64_t slot) const {
    float* const h = history + slot;
    const float last = *h;
    float amax = 0.0f;
    if (last != 0.0f) {
      amax = last;
      for (int64_t i = 1; i < length; ++i) {
        const float older = h[i * slots];
        amax = max_of(older, amax);
        h[(i - 1) * slots] = older;
      }
      h[(length - 1) * slots] = last;
      h[0] = 0.0f;
    }
    if (algorithm == AmaxAlgorithm::kMostRecent) amax = last;
    scale[slot] = fp8_scale(amax, scaled_max, scale[slot]);
    last_amax[slot] = last;
    frozen[slot] += bits_of(amax) == kInfinityBits ? 1 : 0;
  }
};

template <Exec E>
class Fp8OpsOn : public Fp8Ops {
 public:
  explicit Fp8OpsOn(E exec) : exec_(exec) {}

  void cast(const Fp8CastCall& call) override {
    check_shapes(call);
    call.target.dtype == DType::kE4M3 ? cast_to<kE4M3>(call) : cast_to<kE5M2>(call);
  }

  void gather_amax(const Fp8CastCall& call) override {
    with_source(call, [&](const auto& source) {
      exec_.units(source.grid.units(), GatherAmax<decltype(source.codec)>{source, call.slot.amax});
    });
  }

  void scale_from_amax(const Fp8Slot& slot, float max_value) override {
    exec_.elements(1, CurrentScale{slot.scale, slot.amax, max_value});
  }

  void roll(const Fp8RollCall& call) override {
    const int64_t slots = call.history.cols;
    exec_.elements(slots, RollSlot{call.history.as<float>(), call.history.rows, slots, call.scale.as<float>(),
                                   call.last_amax.as<float>(), call.frozen.as<int32_t>(), call.scaled_max,
                                   call.algorithm});
  }

 private:
  template <class F>
  static void with_source(const Fp8CastCall& call, const F& f) {
    with_codec(call.source, [&](const auto& codec) {
      using Codec = std::remove_cvref_t<decltype(codec)>;
      f(Fp8Source<Codec>{{call.source.rows, call.source.cols}, codec, call.through});
    });
  }

  template <FloatFormat kFormat>
  void cast_to(const Fp8CastCall& call) {
    const Fp8Slot& slot = call.slot;
    const bool again = call.kind == Fp8CastKind::kAgain;
    with_source(call, [&](const auto& source) {
      exec_.units(source.grid.units(), CastToFp8<kFormat, decltype(source.codec)>{
                                           .source = source,
                                           .target = call.target.as<uint8_t>(),
                                           .stride = call.target.stride,
                                           .scale = again ? slot.used_scale : slot.scale,
                                           .amax = call.kind == Fp8CastKind::kFold ? slot.amax : nullptr,
                                           .used_scale = again ? nullptr : slot.used_scale,
                                           .scale_inv = again ? nullptr : slot.scale_inv});
    });
  }

  static void check_shapes(const Fp8CastCall& call) {
    check(call.target.rows == call.source.rows && call.target.cols == call.source.cols,
          "cast of [{},{}] into [{},{}]", call.source.rows, call.source.cols, call.target.rows,
          call.target.cols);
    check(call.target.dtype == DType::kE4M3 || call.target.dtype == DType::kE5M2, "cast to FP8 as {}",
          name_of(call.target.dtype));
  }

  E exec_;
};

}  // namespace mpt
