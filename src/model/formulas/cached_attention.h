// Attention of one new token over the keys and values of the tokens before it, for generation.
//
//   o = sum_t p_t v_t,   p = softmax(q k_t / sqrt(D)),   t = 0 .. past (the new token included)
#pragma once

#include "core/bf16.h"
#include "core/host_device.h"
#include "core/scalar_math.h"

namespace mpt {

// One key/value head: appends the token's key and value to the caches, then attends with every
// query head that reads them.
template <class T>
struct CachedAttention {
  const T* qkv;   // [(H + 2 K) D]
  T* keys;        // [positions, K D]
  T* values;      // [positions, K D]
  float* scores;  // [H, positions]
  T* out;         // [H D]
  int64_t heads, key_value_heads, head_dim, past, positions;

  template <class G>
  MPT_HD void operator()(G group, int64_t head) const {
    const int64_t width = key_value_heads * head_dim, first = head * head_dim, dim = head_dim;
    const T *new_key = qkv + heads * head_dim + first, *new_value = new_key + width;
    T *key_slot = keys + first + past * width, *value_slot = values + first + past * width;
    group.each(dim, [=](int64_t d) {
      key_slot[d] = new_key[d];
      value_slot[d] = new_value[d];
    });
    const int64_t readers = heads / key_value_heads;
    for (int64_t query = head * readers; query < (head + 1) * readers; ++query)
      attend(group, query, keys + first, values + first);
  }

  // `key` and `value` are those of position 0.
  template <class G>
  MPT_HD void attend(G group, int64_t head, const T* key, const T* value) const {
    const int64_t width = key_value_heads * head_dim, count = past + 1, dim = head_dim;
    const T* query = qkv + head * dim;
    float* p = scores + head * positions;
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
    T* o = out + head * dim;
    group.each(dim, [=](int64_t d) {
      float sum = 0.0f;
      for (int64_t t = 0; t < count; ++t) sum = std::fma(p[t], to_float(value[t * width + d]), sum);
      o[d] = from_float<T>(sum / total);
    });
  }
};

}  // namespace mpt
