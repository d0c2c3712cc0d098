// RMSNorm with the residual addition that feeds it (Zhang and Sennrich; LLaMA).
//
//   x = residual + branch;   y_c = gain_c * x_c / rms,   rms = sqrt(mean_c x_c^2 + eps)
// x / rms is rounded to the storage type before the gain, as in Hugging Face's LLaMA. Order and
// rounding: docs/numerics.md "RMSNorm".
#pragma once

#include <array>

#include "core/bf16.h"
#include "core/group.h"
#include "core/host_device.h"
#include "core/scalar_math.h"

namespace mpt {

// Residual stream after adding a branch.
template <class T>
MPT_HD T added(T residual, T branch) {
  return from_float<T>(to_float(residual) + to_float(branch));
}

MPT_HD float inverse_rms(float squares, int64_t cols, float eps) {
  return 1.0f / std::sqrt(squares / float(cols) + eps);
}

// y of one element, before its own rounding.
template <class T>
MPT_HD float rms_normed(T x, float inverse, T gain) {
  return rounded_to<T>(to_float(x) * inverse) * to_float(gain);
}

// Gradients of one row; see RmsNormBackward.
struct RmsNormGradient {
  float inverse;  // 1 / rms
  float mean;     // mean_k(dy_k g_k xhat_k)

  MPT_HD float of_gain(float d_y, float x) const { return d_y * (x * inverse); }
  MPT_HD float of_x(float d_y, float x, float gain) const {
    return inverse * (d_y * gain - x * inverse * mean);
  }
};

// One row. `branch` may be null: then x = residual, and `sum` is not written. The output may be
// wider than the storage type, so it is rounded only once, later; or null, if its reader recomputes
// it.
template <class T, class Out = T>
struct AddRmsNormForward {
  const T* residual;  // [N, C]
  const T* branch;    // [N, C] or null
  T* sum;             // [N, C] x, if there is a branch
  Out* out;           // [N, C] y, or null
  float* inv_rms;     // [N]
  const T* gain;      // [C]
  int64_t cols;
  float eps;

  [[nodiscard]] std::array<RowMemory, 4> memory(int64_t row) const {
    const auto of = [&](auto* rows) {
      return RowMemory::of(rows ? rows + row * cols : nullptr, cols);
    };
    return {of(residual), of(branch), branch ? of(sum) : of(branch), of(out)};
  }

  template <class G>
  MPT_HD void operator()(G group, int64_t row) const {
    const T* x = residual + row * cols;
    if (branch != nullptr) {
      const T *a = x, *b = branch + row * cols;
      T* s = sum + row * cols;
      group.each(cols, [=](int64_t c) { s[c] = added(a[c], b[c]); });
      x = s;
    }
    const float squares =
        group.sum(cols, [=](int64_t c) { return to_float(x[c]) * to_float(x[c]); });
    const float inverse = inverse_rms(squares, cols, eps);
    if (group.lane() == 0) inv_rms[row] = inverse;
    if (out == nullptr) return;
    Out* y = out + row * cols;
    const T* g = gain;
    group.each(cols, [=](int64_t c) { y[c] = from_float<Out>(rms_normed(x[c], inverse, g[c])); });
  }
};

// A chunk of rows: adds the gradient of x to that of the residual stream, and writes its part of
// the gain's gradient to its own row of `d_gain_partial`, so no two chunks write to the same place.
//
//   dx_c += (dy_c g_c - xhat_c mean_k(dy_k g_k xhat_k)) / rms,   dg_c = sum_rows dy_c xhat_c
// with xhat = x / rms.
template <class T>
struct RmsNormBackward {
  const T* d_out;         // [N, C]
  const T* x;             // [N, C]
  const float* inv_rms;   // [N]
  const T* gain;          // [C]
  T* d_x;                 // [N, C] added to
  float* d_gain_partial;  // [ceil(N / rows_per_chunk), C]
  int64_t rows, cols, rows_per_chunk;

  template <class G>
  MPT_HD void operator()(G group, int64_t chunk) const {
    float* partial = d_gain_partial + chunk * cols;
    group.each(cols, [=](int64_t c) { partial[c] = 0.0f; });
    const int64_t end = min_of((chunk + 1) * rows_per_chunk, rows);
    for (int64_t row = chunk * rows_per_chunk; row < end; ++row) one_row(group, row, partial);
  }

  template <class G>
  MPT_HD void one_row(G group, int64_t row, float* partial) const {
    const T *dy = d_out + row * cols, *in = x + row * cols, *g = gain;
    const float inverse = inv_rms[row];
    const float dot = group.sum(
        cols, [=](int64_t c) { return to_float(dy[c]) * to_float(g[c]) * to_float(in[c]); });
    const RmsNormGradient formula{inverse, dot * inverse / float(cols)};
    T* dx = d_x + row * cols;
    group.each(cols, [=](int64_t c) {
      const float d = to_float(dy[c]), x_c = to_float(in[c]);
      partial[c] += formula.of_gain(d, x_c);
      dx[c] = from_float<T>(to_float(dx[c]) + formula.of_x(d, x_c, to_float(g[c])));
    });
  }
};

// dg_c = sum of the chunks' parts, in order; added to the existing gradient when accumulating.
template <class D>
struct GainGradient {
  const float* partial;  // [chunks, C]
  D* d_gain;             // [C]
  int64_t chunks, cols;
  float keep;  // 1 to accumulate, 0 to overwrite

  MPT_HD void operator()(int64_t c) const {
    float sum = keep == 0.0f ? 0.0f : to_float(d_gain[c]);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk * cols + c];
    d_gain[c] = from_float<D>(sum);
  }
};

}  // namespace mpt
