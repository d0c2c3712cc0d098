// Inputs of linear layers as a cast to FP8 reads them, computed instead of stored: the outputs of SwiGLU and
// RMSNorm. Units and lanes as in precision/codec.h; the same bits as of the operations that store them.
#pragma once

#include "model/formulas/rms_norm.h"
#include "model/formulas/swiglu.h"
#include "model/llama_ops.h"
#include "precision/unit.h"

namespace mpt {

// x[k] = y(k) for the part of a unit that lies in the row, 0 beyond.
template <class Part, int kSize, class F>
MPT_HD void fill_part(const Part& part, float (&x)[kSize], const F& y) {
  if (part.size == kSize) {
#pragma omp simd
    for (int k = 0; k < kSize; ++k) x[k] = y(k);
  } else {  // every index of x a constant after unrolling, so that a GPU keeps it in registers
    for (int k = 0; k < kSize; ++k) x[k] = k < part.size ? y(k) : 0.0f;
  }
}

struct SwigluSource {
  const bf16* gate_up;  // [N, 2F]
  int64_t cols;         // F

  static SwigluSource of(const SwigluInput& input) {
    check(input.gate_up.dtype == DType::kBF16 && input.gate_up.contiguous(), "gates and ups in {}",
          name_of(input.gate_up.dtype));
    return {input.gate_up.as<bf16>(), input.gate_up.cols / 2};
  }
  template <class G>
  MPT_HD void load(G group, UnitSpan unit, float (&x)[LanePart<G>::kSize]) const {
    const LanePart<G> part(group, unit);
    const bf16 *gate = gate_up + 2 * unit.row * cols + part.col, *up = gate + cols;
    fill_part(part, x, [=](int k) { return swiglu(to_float(gate[k]), to_float(up[k])); });
  }
};

struct NormSource {
  const bf16* x;         // [N, C]
  const float* inv_rms;  // [N]
  const bf16* gain;      // [C]
  int64_t cols;          // C

  static NormSource of(const NormInput& input) {
    check(input.x.dtype == DType::kBF16 && input.x.contiguous() && input.gain.dtype == DType::kBF16,
          "a norm of {} with gains in {}", name_of(input.x.dtype), name_of(input.gain.dtype));
    return {input.x.as<bf16>(), input.inv_rms.as<float>(), input.gain.as<bf16>(), input.x.cols};
  }
  template <class G>
  MPT_HD void load(G group, UnitSpan unit, float (&y)[LanePart<G>::kSize]) const {
    const LanePart<G> part(group, unit);
    const bf16 *in = x + unit.row * cols + part.col, *g = gain + part.col;
    const float inverse = inv_rms[unit.row];
    fill_part(part, y, [=](int k) { return rms_normed(in[k], inverse, g[k]); });
  }
};

// f(source) of the input.
template <class F>
void with_computed(const ComputedInput& input, const F& f) {
  if (const auto* swiglu = std::get_if<SwigluInput>(&input))
    f(SwigluSource::of(*swiglu));
  else
    f(NormSource::of(std::get<NormInput>(input)));
}

}  // namespace mpt
