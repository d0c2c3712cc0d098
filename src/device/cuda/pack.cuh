// Several neighbouring elements moved in one access: 16 bytes is the most that a thread moves at once.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/bf16.h"
#include "core/host_device.h"
#include "core/tensor.h"

namespace mpt {

inline constexpr int kPackBytes = 16;

// Elements of T that fill one access.
template <class T>
inline constexpr int kPackOf = kPackBytes / int(sizeof(T));

template <class T, int N>
struct alignas(sizeof(T) * N < kPackBytes ? sizeof(T) * N : kPackBytes) Pack {
  T at[N];
};

// Pack i of a matrix whose rows are whole packs, one after the other. Counting in packs rather than in
// elements is what lets nvcc see that every access is aligned.
template <int N, class T>
MPT_HD Pack<T, N> load_pack(const T* from, int64_t i) {
  return reinterpret_cast<const Pack<T, N>*>(from)[i];
}
template <int N, class T>
MPT_HD Pack<T, N> load_pack(const T* from) {
  return load_pack<N>(from, 0);
}
template <class T, int N>
MPT_HD void store_pack(T* to, int64_t i, const Pack<T, N>& pack) {
  reinterpret_cast<Pack<T, N>*>(to)[i] = pack;
}
template <class T, int N>
MPT_HD void store_pack(T* to, const Pack<T, N>& pack) {
  store_pack(to, 0, pack);
}

template <class T, int N>
MPT_HD Pack<float, N> to_floats(const Pack<T, N>& pack) {
  Pack<float, N> wide;
#pragma unroll
  for (int i = 0; i < N; ++i) wide.at[i] = to_float(pack.at[i]);
  return wide;
}
template <class T, int N>
MPT_HD Pack<T, N> from_floats(const Pack<float, N>& wide) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.at[i] = from_float<T>(wide.at[i]);
  return pack;
}

template <class T, int N>
MPT_HD Pack<T, N> filled(T x) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.at[i] = x;
  return pack;
}

// Whether rows of `cols` elements fall into packs of `width` in each of these tensors; one that is absent
// does not matter.
inline bool packable(int64_t cols, int width, std::initializer_list<Tensor> tensors) {
  for (const Tensor& tensor : tensors)
    if (reinterpret_cast<uintptr_t>(tensor.data) % kPackBytes != 0) return false;
  return cols % width == 0;
}

// Where a kernel leaves its results: rounded to Out, `packs` packs in a row. Another sink may do more with
// them.
template <class Out>
struct RowStore {
  Out* data;
  int64_t packs;

  template <int N>
  MPT_HD void put(int64_t row, int64_t pack, const Pack<float, N>& y) const {
    store_pack(data, row * packs + pack, from_floats<Out>(y));
  }
};

// For results that nobody reads.
struct NoStore {
  template <int N>
  MPT_HD void put(int64_t, int64_t, const Pack<float, N>&) const {}
};

}  // namespace mpt
