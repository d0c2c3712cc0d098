// Fp8Ops for any Exec.
#pragma once

#include <atomic>
#include <limits>

#include "core/float_format.h"
#include "device/exec.h"
#include "precision/fp8_ops.h"
#include "precision/weight_formats.h"

namespace mpt {

inline constexpr uint32_t kInfinityBits = 0x7F800000u;

// *most = max(*most, x) for x >= 0; thread-safe.
MPT_HD void fold_max(float* most, float x) {
#ifdef MPT_ON_GPU
  atomicMax(reinterpret_cast<int*>(most),
            __float_as_int(x));  // nonnegative floats order like their bits
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

// Loads update blocks of the source the way the cast sees them.
template <class Codec>
struct Fp8Source {
  BlockGrid grid;
  Codec codec;
  Format through;

  template <class G>
  MPT_HD void load(G group, BlockSpan span, float (&x)[LanePart<G>::kSize]) const {
    codec.load(group, span, x);
    pass_through(x);
  }
  template <int kSize>
  MPT_HD void pass_through(float (&x)[kSize]) const {
    if (through == Format::kF32) return;
#pragma omp simd
    for (int k = 0; k < kSize; ++k) x[k] = rounded_to<bf16>(x[k]);
  }
};

// Kernels are templates over the DType: nvcc cannot name one over a class.
template <DType kTo>
inline constexpr FloatFormat kFormatOf = kTo == DType::kE4M3 ? kE4M3 : kE5M2;

struct NoteScale {
  const float* scale;
  float *used_scale, *scale_inv;

  MPT_HD void operator()(int64_t) const {
    *used_scale = *scale;
    *scale_inv = 1.0f / *scale;
  }
};

// Inputs and outputs of a cast other than its source.
struct Fp8CastEnds {
  uint8_t* target;  // null: not wanted
  int64_t stride;
  uint8_t* transposed;  // null: not wanted
  int64_t transposed_stride;
  const float* scale;
  float* amax;                    // null: not gathered
  float *used_scale, *scale_inv;  // null: not recorded

  static Fp8CastEnds of(const Fp8CastCall& call) {
    const Fp8Slot& slot = call.slot;
    const bool again = call.kind == Fp8CastKind::kAgain;
    return {.target = call.target.as<uint8_t>(),
            .stride = call.target.stride,
            .transposed = call.transposed.as<uint8_t>(),
            .transposed_stride = call.transposed.stride,
            .scale = again ? slot.used_scale : slot.scale,
            .amax = call.kind == Fp8CastKind::kFold ? slot.amax : nullptr,
            .used_scale = again ? nullptr : slot.used_scale,
            .scale_inv = again ? nullptr : slot.scale_inv};
  }
  // Call from one lane of one group.
  MPT_HD void note_scale() const {
    if (used_scale != nullptr) NoteScale{scale, used_scale, scale_inv}(0);
  }
};

template <DType kTo, class Codec>
struct CastToFp8 {
  Fp8Source<Codec> source;
  Fp8CastEnds ends;

  template <class G>
  MPT_HD void operator()(G group, int64_t block) const {
    constexpr int kSize = LanePart<G>::kSize;
    const BlockSpan span = source.grid.span(block);
    float x[kSize];
    source.load(group, span, x);
    if (ends.amax != nullptr) {
      const float most = group.reduce_max(amax_of(x));
      if (group.lane() == 0) fold_max(ends.amax, most);
    }
    const float factor = *ends.scale;
    uint8_t code[kSize];
#pragma omp simd
    for (int k = 0; k < kSize; ++k) code[k] = round_to<kFormatOf<kTo>>(x[k] * factor, Nearest{});
    write(span, LanePart<G>(group, span), code);
    if (block == 0 && group.lane() == 0) ends.note_scale();
  }

 private:
  template <class Part, int kSize>
  MPT_HD void write(BlockSpan span, const Part& part, const uint8_t (&code)[kSize]) const {
    if (ends.target != nullptr) {
      uint8_t* const out = ends.target + span.row * ends.stride + part.col;
      if (part.size == kSize)
        memcpy(out, code, kSize);
      else
        for (int k = 0; k < part.size; ++k) out[k] = code[k];
    }
    if (ends.transposed == nullptr) return;
    uint8_t* const out = ends.transposed + part.col * ends.transposed_stride + span.row;
    for (int k = 0; k < part.size; ++k) out[k * ends.transposed_stride] = code[k];
  }
};

template <class Codec>
struct GatherAmax {
  Fp8Source<Codec> source;
  float* amax;

  template <class G>
  MPT_HD void operator()(G group, int64_t block) const {
    float x[LanePart<G>::kSize];
    source.load(group, source.grid.span(block), x);
    const float most = group.reduce_max(amax_of(x));
    if (group.lane() == 0) fold_max(amax, most);
  }
};

// Scale that maps `amax` to the largest value; `otherwise` if amax is 0 or not finite.
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

// One slot (docs/numerics.md "Delayed scaling"). An amax of 0 means that nothing or only zeros were
// cast; the history is then kept.
struct RollSlot {
  float* history;
  int64_t length, slots;
  float *scale, *last_amax;
  int32_t* frozen;
  float scaled_max;
  AmaxAlgorithm algorithm;

  static RollSlot of(const Fp8RollCall& call) {
    return {.history = call.history.as<float>(),
            .length = call.history.rows,
            .slots = call.history.cols,
            .scale = call.scale.as<float>(),
            .last_amax = call.last_amax.as<float>(),
            .frozen = call.frozen.as<int32_t>(),
            .scaled_max = call.scaled_max,
            .algorithm = call.algorithm};
  }

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
    set_scale(slot, last, amax);
  }

  // `amax`: maximum of the history, including `last`.
  MPT_HD void set_scale(int64_t slot, float last, float amax) const {
    if (algorithm == AmaxAlgorithm::kMostRecent) amax = last;
    scale[slot] = fp8_scale(amax, scaled_max, scale[slot]);
    last_amax[slot] = last;
    frozen[slot] += bits_of(amax) == kInfinityBits ? 1 : 0;
  }
};

template <class Codec>
Fp8Source<Codec> fp8_source(const Codec& codec, const Fp8CastCall& call) {
  return {{call.source.rows, call.source.cols}, codec, call.through};
}

// Calls f<type>() with e4m3 or e5m2 as a compile-time constant.
template <class F>
void with_fp8_type(DType type, const F& f) {
  type == DType::kE4M3 ? f.template operator()<DType::kE4M3>()
                       : f.template operator()<DType::kE5M2>();
}

// Fp8Casts for any codec with load().
template <Exec E, class Codec>
void cast_blocks(const E& exec, const Fp8Source<Codec>& source, const Fp8CastCall& call) {
  check_targets(call);
  with_fp8_type(call.format(), [&]<DType kTo> {
    exec.blocks(source.grid.blocks(), CastToFp8<kTo, Codec>{source, Fp8CastEnds::of(call)});
  });
}
template <Exec E, class Codec>
void gather_amax_of_blocks(const E& exec, const Fp8Source<Codec>& source, const Fp8CastCall& call) {
  exec.blocks(source.grid.blocks(), GatherAmax<Codec>{source, call.slot.amax});
}

template <Exec E>
class Fp8OpsOn : public Fp8Ops {
 public:
  explicit Fp8OpsOn(E exec) : exec_(exec) {}

  void cast(const Fp8CastCall& call) override {
    with_source(call, [&](const auto& source) { cast_blocks(exec_, source, call); });
  }

  void gather_amax(const Fp8CastCall& call) override {
    with_source(call, [&](const auto& source) { gather_amax_of_blocks(exec_, source, call); });
  }

  void scale_from_amax(const Fp8Slot& slot, float max_value) override {
    exec_.elements(1, CurrentScale{slot.scale, slot.amax, max_value});
  }

  void note_scale(const Fp8Slot& slot) override {
    exec_.elements(1, NoteScale{slot.scale, slot.used_scale, slot.scale_inv});
  }

  void roll(const Fp8RollCall& call) override {
    exec_.elements(call.history.cols, RollSlot::of(call));
  }

 protected:
  template <class F>
  static void with_source(const Fp8CastCall& call, const F& f) {
    with_codec(call.source, [&](const auto& codec) { f(fp8_source(codec, call)); });
  }

 private:
  E exec_;
};

}  // namespace mpt
