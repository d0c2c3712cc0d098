// Attention of one new token over the keys and values of the tokens before it, for generation.
//
//   o = sum_t p_t v_t,   p = softmax(q k_t / sqrt(D)),   t = 0 .. past (the new token included)
#pragma once

#include "core/bf16.h"
#include "core/host_device.h"
#include "core/scalar_math.h"

namespace mpt {

// One head: appends the token's key and value to the caches, then attends.
template <class T>
struct CachedAttention {
  const T* qkv;   // [3C]
  T* keys;        // [positions, C]
  T* values;      // [positions, C]
  float* scores;  // [H, positions]
  T* out;         // [C]
  int64_t heads, head_dim, past, positions;

  template <class G>
  MPT_HD void operator()(G group, int64_t head) const {
    const int64_t width = heads * head_dim, first = head * head_dim, count = past + 1,
                  dim = head_dim;
    const T* query = qkv + first;
    T *key = keys + first, *value = values + first;
    float* p = scores + head * positions;
    const T *new_key = qkv + width + first, *new_value = qkv + 2 * width + first;
    T *key_slot = key + past * width, *value_slot = value + past * width;
    group.each(dim, [=](int64_t d) {
      key_slot[d] = new_key[d];
      value_slot[d] = new_value[d];
    });
    const float scale = 1.0f / std::sqrt(float(dim));
    for (int64_t t = 0; t < count; ++t) {
      const T* k = key + t * width;
      const float score =
          group.sum(dim, [=](int64_t d) { return to_float(query[d]) * to_float(k[d]); });
      // One lane writes; each() makes the others see it, which no sum does.
      group.each(1, [=](int64_t) { p[t] = scale * score; });
    }
    const float top = group.max(count, [=](int64_t t) { return p[t]; });
    group.each(count, [=](int64_t t) { p[t] = exp_of(p[t] - top); });
    const float total = group.sum(count, [=](int64_t t) { return p[t]; });
    T* o = out + first;
    group.each(dim, [=](int64_t d) {
      float sum = 0.0f;
      for (int64_t t = 0; t < count; ++t) sum = std::fma(p[t], to_float(value[t * width + d]), sum);
      o[d] = from_float<T>(sum / total);
    });
  }
};

}  // namespace mpt
