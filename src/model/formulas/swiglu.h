// SwiGLU: y = silu(gate) * up, silu(x) = x / (1 + e^-x) (Shazeer; docs/numerics.md "SwiGLU").
#pragma once

#include <array>

#include "core/bf16.h"
#include "core/group.h"
#include "core/host_device.h"
#include "model/formulas/approximate.h"

namespace mpt {

template <class S>
MPT_HD S sigmoid(S x) {
  return approximate_quotient(S(1), S(1) + approximate_exp(S(-x)));
}

template <class S>
MPT_HD S swiglu(S gate, S up) {
  return gate * sigmoid(gate) * up;
}

template <class S>
struct SwigluGradient {
  S gate, up;
};

// With s = sigmoid(gate):  dgate = dy up s (1 + gate (1 - s)),  dup = dy gate s.
template <class S>
MPT_HD SwigluGradient<S> swiglu_gradient(S gate, S up, S d_out) {
  const S s = sigmoid(gate);
  return {d_out * up * s * (S(1) + gate * (S(1) - s)), d_out * gate * s};
}

// One token; gate and up are stored side by side. The output may be wider than the storage type.
template <class T, class Out = T>
struct SwigluForward {
  const T* gate_up;  // [N, 2F]
  Out* out;          // [N, F]
  int64_t cols;      // F

  [[nodiscard]] std::array<RowMemory, 2> memory(int64_t row) const {
    return {RowMemory::of(gate_up + 2 * row * cols, 2 * cols),
            RowMemory::of(out + row * cols, cols)};
  }

  template <class G>
  MPT_HD void operator()(G group, int64_t row) const {
    const T *gate = gate_up + 2 * row * cols, *up = gate + cols;
    Out* y = out + row * cols;
    group.each(cols, [=](int64_t c) {
      y[c] = from_float<Out>(swiglu(to_float(gate[c]), to_float(up[c])));
    });
  }
};

// One token; the gradients overwrite gate and up.
template <class T>
struct SwigluBackward {
  T* gate_up;      // [N, 2F]
  const T* d_out;  // [N, F]
  int64_t cols;    // F

  [[nodiscard]] std::array<RowMemory, 2> memory(int64_t row) const {
    return {RowMemory::of(gate_up + 2 * row * cols, 2 * cols),
            RowMemory::of(d_out + row * cols, cols)};
  }

  template <class G>
  MPT_HD void operator()(G group, int64_t row) const {
    T *gate = gate_up + 2 * row * cols, *up = gate + cols;
    const T* dy = d_out + row * cols;
    group.each(cols, [=](int64_t c) {
      const auto d = swiglu_gradient(to_float(gate[c]), to_float(up[c]), to_float(dy[c]));
      gate[c] = from_float<T>(d.gate);
      up[c] = from_float<T>(d.up);
    });
  }
};

}  // namespace mpt
