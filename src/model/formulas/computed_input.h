// Inputs of linear layers computed inside their FP8 cast instead of stored: the outputs of SwiGLU
// and RMSNorm. Update blocks and lanes are those of precision/codec.h. Gives the same bits as the
// operations that store these outputs, and must be compiled with the same flags: compilers contract
// parts of e^x with later additions.
#pragma once

#include "core/blocks.h"
#include "model/formulas/rms_norm.h"
#include "model/formulas/swiglu.h"
#include "model/llama_ops.h"

namespace mpt {

// x[k] = y(k) for the part of an update block inside the row, 0 beyond it.
template <class Part, int kSize, class F>
MPT_HD void fill_part(const Part& part, float (&x)[kSize], const F& y) {
  if (part.size == kSize) {
#pragma omp simd
    for (int k = 0; k < kSize; ++k) x[k] = y(k);
  } else {  // unrolled, so indices are constant and a GPU keeps x in registers
    for (int k = 0; k < kSize; ++k) x[k] = k < part.size ? y(k) : 0.0f;
  }
}

struct SwigluSource {
  const bf16* gate_up;  // [N, 2F]
  int64_t cols;         // F

  static SwigluSource of(const SwigluInput& input) {
    const Tensor& t = input.gate_up;
    check(t.dtype == DType::kBF16 && t.contiguous(),
          "gates and ups in {}, rows of {} with stride {}; expected contiguous bf16",
          name_of(t.dtype), t.cols, t.stride);
    return {t.as<bf16>(), t.cols / 2};
  }
  template <class G>
  MPT_HD void load(G group, BlockSpan span, float (&x)[LanePart<G>::kSize]) const {
    const LanePart<G> part(group, span);
    const bf16 *gate = gate_up + 2 * span.row * cols + part.col, *up = gate + cols;
    fill_part(part, x, [=](int k) { return swiglu(to_float(gate[k]), to_float(up[k])); });
  }
};

struct NormSource {
  const bf16* x;         // [N, C]
  const float* inv_rms;  // [N]
  const bf16* gain;      // [C]
  int64_t cols;          // C

  static NormSource of(const NormInput& input) {
    check(input.x.dtype == DType::kBF16 && input.gain.dtype == DType::kBF16 && input.x.contiguous(),
          "norm of {}, rows of {} with stride {}, gains in {}; expected contiguous bf16",
          name_of(input.x.dtype), input.x.cols, input.x.stride, name_of(input.gain.dtype));
    check(input.inv_rms.elements() == input.x.rows && input.gain.elements() == input.x.cols,
          "norm of [{},{}] with {} inverse RMS values and {} gains", input.x.rows, input.x.cols,
          input.inv_rms.elements(), input.gain.elements());
    return {input.x.as<bf16>(), input.inv_rms.as<float>(), input.gain.as<bf16>(), input.x.cols};
  }
  template <class G>
  MPT_HD void load(G group, BlockSpan span, float (&y)[LanePart<G>::kSize]) const {
    const LanePart<G> part(group, span);
    const bf16 *in = x + span.row * cols + part.col, *g = gain + part.col;
    const float inverse = inv_rms[span.row];
    fill_part(part, y, [=](int k) { return rms_normed(in[k], inverse, g[k]); });
  }
};

// Calls f(source) with the input, whose shape must match the call's source.
template <class F>
void with_computed(const ComputedInput& input, const Fp8CastCall& call, const F& f) {
  const auto checked = [&](const auto& source, int64_t rows) {
    check(call.source.rows == rows && call.source.cols == source.cols,
          "cast of [{},{}] from a computed input [{},{}]", call.source.rows, call.source.cols, rows,
          source.cols);
    f(source);
  };
  if (const auto* swiglu = std::get_if<SwigluInput>(&input))
    return checked(SwigluSource::of(*swiglu), swiglu->gate_up.rows);
  const auto& norm = std::get<NormInput>(input);
  checked(NormSource::of(norm), norm.x.rows);
}

}  // namespace mpt
