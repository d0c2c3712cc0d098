// Shared by kernels that work on rows: packs of adjacent elements moved in one access, and teams of
// warps that hold a row in registers.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <cuda_runtime.h>

#include "core/bf16.h"
#include "core/host_device.h"
#include "core/scalar_math.h"
#include "core/tensor.h"

namespace mpt {

// Largest access of a thread.
inline constexpr int kPackBytes = 16;

// Number of elements of T in one access.
template <class T>
inline constexpr int kPackOf = kPackBytes / int(sizeof(T));

template <class T, int N>
struct alignas(sizeof(T) * N < kPackBytes ? sizeof(T) * N : kPackBytes) Pack {
  T at[N];
};

// Pack i of a contiguous matrix whose rows are whole packs. Indexing by packs rather than elements
// lets nvcc see that every access is aligned.
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

// Whether rows of `cols` elements divide into packs of `width` in each of these tensors; null
// tensors are accepted.
inline bool packable(int64_t cols, int width, std::initializer_list<Tensor> tensors) {
  for (const Tensor& tensor : tensors)
    if (reinterpret_cast<uintptr_t>(tensor.data) % kPackBytes != 0) return false;
  return cols % width == 0;
}

// Sink for a kernel's results: rounds to Out and stores, `packs` packs per row. Other sinks may do
// more.
template <class Out>
struct RowStore {
  Out* data;
  int64_t packs;

  template <int N>
  MPT_HD void put(int64_t row, int64_t pack, const Pack<float, N>& y) const {
    store_pack(data, row * packs + pack, from_floats<Out>(y));
  }
};

// Sink that discards results.
struct NoStore {
  template <int N>
  MPT_HD void put(int64_t, int64_t, const Pack<float, N>&) const {}
};

// Sink for kernels whose teams of warps make rows, with one Writer per thread. Here every row is
// its own tile; other sinks may process the rows of a tile once all have been put.
template <class Sink>
struct RowByRow {
  Sink sink;

  template <class Team>
  struct Writer {
    static constexpr bool kTiles = false;
    const Sink& sink;

    __device__ Writer(const RowByRow& rows, int64_t) : sink(rows.sink) {}
    __device__ int tile_rows() const { return Team::kPerBlock; }
    // Takes a pack of a row, which is `in_tile` rows below the tile's first.
    template <int N>
    __device__ void put(int64_t row, int /*in_tile*/, int pack, const Pack<float, N>& y) const {
      sink.put(row, pack, y);
    }
    // Called when rows [first, end) have been put. All threads of the block call this and end().
    __device__ void end_tile(int64_t /*first*/, int64_t /*end*/) const {}
    __device__ void end() const {}
  };
};

// --- row teams -----------------------------------------------------------------------------------

// The warps that share a row and hold it in registers, a pack at a time: lane l of a team has packs
// l, l + lanes, l + 2 lanes, ... of the row, so that accesses of adjacent lanes are contiguous.
//
// Teams of one warp share a block, eight per block; a larger team has its own block.
template <int kWarps>
struct RowTeam {
  static constexpr int kLanes = 32 * kWarps;
  static constexpr int kPerBlock = kWarps == 1 ? 8 : 1;
  static constexpr int kThreads = kLanes * kPerBlock;

  static int64_t blocks_for(int64_t rows) { return (rows + kPerBlock - 1) / kPerBlock; }

  __device__ RowTeam() : lane_(int(threadIdx.x) % kLanes) {}
  __device__ int lane() const { return lane_; }
  __device__ int in_block() const { return int(threadIdx.x) / kLanes; }
  __device__ int64_t index() const { return int64_t{blockIdx.x} * kPerBlock + in_block(); }

  // Calls f(k, pack) for each of this lane's packs in a row of `packs` packs, k < kPacks.
  template <int kPacks, class F>
  __device__ void each_pack(int packs, const F& f) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
      if (const int pack = k * kLanes + lane(); pack < packs) f(k, pack);
  }

  // Sum over the team's lanes in a fixed order, returned to every lane. All lanes must call. `turn`
  // must alternate between 0 and 1 from call to call, so that no lane overwrites what another still
  // reads.
  __device__ float sum(float x, int turn) const {
    return reduce(x, turn, [](float a, float b) { return a + b; });
  }
  // Same for the maximum; NaNs are ignored.
  __device__ float max(float x, int turn) const {
    return reduce(x, turn, [](float a, float b) { return max_of(b, a); });
  }

 private:
  static constexpr unsigned kAll = 0xffffffffu;

  template <class Combine>
  __device__ static float reduce(float x, int turn, const Combine& combine) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      x = combine(x, __shfl_xor_sync(kAll, x, distance));
    if constexpr (kWarps > 1) {
      __shared__ float parts[2][kWarps];
      if (threadIdx.x % 32 == 0) parts[turn][threadIdx.x / 32] = x;
      __syncthreads();
      x = parts[turn][0];
#pragma unroll
      for (int warp = 1; warp < kWarps; ++warp) x = combine(x, parts[turn][warp]);
    }
    return x;
  }

  int lane_;  // stored, so that the compiler sees that each_pack() has the same packs every time
};

// Calls f<warps, packs>() with the smallest team whose lanes hold a row of this many packs, at two
// per lane: a lane's registers must hold its loads in flight several times over. Returns false if
// the row is too long.
template <class F>
bool with_row_team(int64_t packs, const F& f) {
  if (packs <= 32)
    f.template operator()<1, 1>();
  else if (packs <= 64)
    f.template operator()<1, 2>();
  else if (packs <= 128)
    f.template operator()<2, 2>();
  else if (packs <= 256)
    f.template operator()<4, 2>();
  else if (packs <= 512)
    f.template operator()<8, 2>();
  else if (packs <= 1024)
    f.template operator()<8, 4>();
  else
    return false;
  return true;
}

}  // namespace mpt
