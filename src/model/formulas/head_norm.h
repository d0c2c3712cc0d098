// RMSNorm of every head of Q and K before they are rotated (Qwen3). Same formulas and rounding as
// rms_norm.h, over the D elements of a head, with one gain for all heads of Q and one for all of K.
#pragma once

#include <array>

#include "core/bf16.h"
#include "core/group.h"
#include "core/host_device.h"
#include "model/formulas/rms_norm.h"

namespace mpt {

// One token: copies Q and K to `before`, then normalizes them in place.
template <class T>
struct HeadNormForward {
  T* qkv;                          // [N, stride]: heads of Q, then of K, then others
  int64_t stride;                  // of the rows of qkv
  T* before;                       // [N, (H + K) D]
  float* inv_rms;                  // [N, H + K]
  const T *query_gain, *key_gain;  // [D]
  int64_t query_heads, heads;      // H, H + K
  int64_t head_dim;
  float eps;

  [[nodiscard]] std::array<RowMemory, 2> memory(int64_t token) const {
    const int64_t width = heads * head_dim;
    return {RowMemory::of(qkv + token * stride, width),
            RowMemory::of(before + token * width, width)};
  }

  template <class G>
  MPT_HD void operator()(G group, int64_t token) const {
    const int64_t dim = head_dim;
    for (int64_t head = 0; head < heads; ++head) {
      T *y = qkv + token * stride + head * dim, *x = before + (token * heads + head) * dim;
      const float squares =
          group.sum(dim, [=](int64_t d) { return to_float(y[d]) * to_float(y[d]); });
      const float inverse = inverse_rms(squares, dim, eps);
      if (group.lane() == 0) inv_rms[token * heads + head] = inverse;
      const T* g = head < query_heads ? query_gain : key_gain;
      group.each(dim, [=](int64_t d) {
        const T was = y[d];
        x[d] = was;
        y[d] = from_float<T>(rms_normed(was, inverse, g[d]));
      });
    }
  }
};

// A chunk of tokens: replaces the gradient of the normalized heads by that of the heads before
// normalization, and writes its parts of the gains' gradients to its own rows of the partial sums.
template <class T>
struct HeadNormBackward {
  T* d_qkv;                            // [N, stride]
  int64_t stride;                      // of the rows of d_qkv
  const T* before;                     // [N, (H + K) D]
  const float* inv_rms;                // [N, H + K]
  const T *query_gain, *key_gain;      // [D]
  float *query_partial, *key_partial;  // [chunks, D]
  int64_t query_heads, heads;          // H, H + K
  int64_t head_dim;
  int64_t tokens, tokens_per_chunk;

  template <class G>
  MPT_HD void operator()(G group, int64_t chunk) const {
    float *of_queries = query_partial + chunk * head_dim, *of_keys = key_partial + chunk * head_dim;
    group.each(head_dim, [=](int64_t d) { of_queries[d] = of_keys[d] = 0.0f; });
    const int64_t end = min_of((chunk + 1) * tokens_per_chunk, tokens);
    for (int64_t token = chunk * tokens_per_chunk; token < end; ++token)
      for (int64_t head = 0; head < heads; ++head) {
        const bool query = head < query_heads;
        one_head(group, token, head, query ? query_gain : key_gain, query ? of_queries : of_keys);
      }
  }

  template <class G>
  MPT_HD void one_head(G group, int64_t token, int64_t head, const T* g, float* partial) const {
    T* d = d_qkv + token * stride + head * head_dim;
    const T* x = before + (token * heads + head) * head_dim;
    const float dot = group.sum(
        head_dim, [=](int64_t i) { return to_float(d[i]) * to_float(g[i]) * to_float(x[i]); });
    const float inverse = inv_rms[token * heads + head];
    const RmsNormGradient formula{inverse, dot * inverse / float(head_dim)};
    group.each(head_dim, [=](int64_t i) {
      const float d_y = to_float(d[i]), x_i = to_float(x[i]);
      partial[i] += formula.of_gain(d_y, x_i);
      d[i] = from_float<T>(formula.of_x(d_y, x_i, to_float(g[i])));
    });
  }
};

}  // namespace mpt
