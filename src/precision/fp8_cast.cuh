// Casts to FP8 on a GPU: codes in rows, transposed or both, and the amax, in one pass over the
// source. Bit-identical to the generic cast (fp8_ops_on.h).
#pragma once

#ifdef __CUDACC__
#include <cuda_fp8.h>
#endif

#include <cmath>

#include "device/cuda/block_kernels.cuh"
#include "device/cuda/cuda_exec.cuh"
#include "precision/fp8_ops_on.h"

namespace mpt {

// A thread block casts a tile of kTileRows rows by one update block of columns. Shared memory holds
// the codes for the transposed store: each thread collects kRun rows of a column and stores them at
// once, with kRuns threads next to each other.
inline constexpr int kTileRows = 64;
inline constexpr int kRun = kPackBytes;
inline constexpr int kRuns = kTileRows / kRun;
inline constexpr int kWarps = kThreadsPerBlock / WarpGroup::kLanes;

// fp32 or bf16 rows that start at multiples of 16 bytes.
template <class T>
struct PackedRows {
  const T* data;
  int64_t stride;
};

inline constexpr int kLaneCodes = kUpdateBlock / WarpGroup::kLanes;

// A lane's fetched but unprocessed values in one update block, so that loads of several rows
// overlap. Decoded values, or raw words for packed rows.
template <class Codec>
struct LaneValues {
  static constexpr int kAtOnce = 2;  // decoding needs registers too
  float x[kLaneCodes];

  MPT_HD void fetch(const Codec& codec, BlockSpan span) { codec.load(WarpGroup{}, span, x); }
  MPT_HD void get(float (&values)[kLaneCodes]) const {
#pragma unroll
    for (int k = 0; k < kLaneCodes; ++k) values[k] = x[k];
  }
};
template <class T>
struct LaneValues<PackedRows<T>> {
  static constexpr int kAtOnce = 4;
  static constexpr int kPerWord = 4 / int(sizeof(T));
  Pack<uint32_t, kLaneCodes / kPerWord>
      words;  // unpacked in get(): doing it here would wait for the load

  MPT_HD void fetch(const PackedRows<T>& rows, BlockSpan span) {
    const LanePart<WarpGroup> part(WarpGroup{}, span);
    const T* const from = rows.data + span.row * rows.stride + part.col;
    if (part.size == kLaneCodes) {
      words = load_pack<kLaneCodes / kPerWord>(reinterpret_cast<const uint32_t*>(from));
    } else {
      words = {};
#pragma unroll
      for (int k = 0; k < kLaneCodes; ++k)
        if (k < part.size) words.at[k / kPerWord] |= element_bits(from[k]) << shift_of(k);
    }
  }
  MPT_HD void get(float (&values)[kLaneCodes]) const {
#pragma unroll
    for (int k = 0; k < kLaneCodes; ++k) {
      const uint32_t bits = words.at[k / kPerWord] >> shift_of(k);
      values[k] = float_of(sizeof(T) == 4 ? bits : bits << 16);
    }
  }

 private:
  MPT_HD static int shift_of(int k) { return k % kPerWord * 16; }
  MPT_HD static uint32_t element_bits(bf16 x) { return x.bits; }
  MPT_HD static uint32_t element_bits(float x) { return bits_of(x); }
};

// Two codes, `low` in the lower byte. From sm_89 on, a single instruction does this; it rounds like
// round_to().
template <DType kTo>
MPT_HD uint16_t round_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  constexpr auto kCode = kTo == DType::kE4M3 ? __NV_E4M3 : __NV_E5M2;
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, kCode);
#else
  const uint32_t first = round_to<kFormatOf<kTo>>(low, Nearest{}),
                 second = round_to<kFormatOf<kTo>>(high, Nearest{});
  return static_cast<uint16_t>(first | second << 8);
#endif
}

// max(most, largest |x| of the lane's part); fmax ignores NaNs.
template <int kSize>
MPT_HD float most_with(float most, const float (&x)[kSize]) {
#pragma unroll
  for (int k = 0; k < kSize; ++k) most = std::fmax(most, std::fabs(x[k]));
  return most;
}

// Codes of a lane's part in memory order.
using LaneCodes = Pack<uint16_t, kLaneCodes / 2>;

MPT_HD uint8_t code_at(const LaneCodes& codes, int k) {
  return static_cast<uint8_t>(codes.at[k / 2] >> (8 * (k % 2)));
}

// Runs start in different banks, so threads collecting adjacent runs do not conflict.
struct alignas(kPackBytes) CodeTile {
  static constexpr int kShift = kLaneCodes;
  uint8_t code[kTileRows * kUpdateBlock + kRuns * kShift];

  MPT_HD static int offset(int row, int col) {
    return row * kUpdateBlock + row / kRun * kShift + col;
  }
};

// Position of a thread block's tile in the tensor.
struct TilePlace {
  int64_t first_row;
  BlockSpan span;  // of that row

  MPT_HD TilePlace(const BlockGrid& grid, int64_t tile) {
    const int64_t tiles_down = (grid.rows + kTileRows - 1) / kTileRows;
    first_row = tile % tiles_down * kTileRows;
    span = grid.span(first_row * grid.per_row() + tile / tiles_down);
  }
  static int64_t count(const BlockGrid& grid) {
    return (grid.rows + kTileRows - 1) / kTileRows * grid.per_row();
  }
};

// Calls f(row of the tile, Values of this lane) for the calling warp's rows of a tensor with `rows`
// rows. Rows past its end repeat the last one.
template <class Values, class Source, class F>
__device__ void each_fetched_row(const Source& source, int64_t rows, const TilePlace& place,
                                 const F& f) {
  constexpr int kRows = kTileRows / kWarps;
  static_assert(kRows % Values::kAtOnce == 0);
  const int first = static_cast<int>(threadIdx.x) / WarpGroup::kLanes * kRows;
#pragma unroll 1
  for (int done = first; done < first + kRows; done += Values::kAtOnce) {
    Values fetched[Values::kAtOnce];
#pragma unroll
    for (int i = 0; i < Values::kAtOnce; ++i) {
      const int64_t row = min_of(place.first_row + done + i, rows - 1);
      fetched[i].fetch(source, {row, place.span.col, place.span.count});
    }
#pragma unroll
    for (int i = 0; i < Values::kAtOnce; ++i) f(done + i, fetched[i]);
  }
}

// Like above, but calls f(row of the tile, its elements in this lane).
template <class Codec, class F>
__device__ void each_row_of_tile(const Fp8Source<Codec>& source, const TilePlace& place,
                                 const F& f) {
  using Values = LaneValues<Codec>;
  each_fetched_row<Values>(source.codec, source.grid.rows, place,
                           [&](int row, const Values& fetched) {
                             float x[kLaneCodes];
                             fetched.get(x);
                             source.pass_through(x);
                             f(row, x);
                           });
}

// *most = max(*most, `mine` over all threads), with one atomic per block of kWarpsOfBlock warps.
template <int kWarpsOfBlock = kWarps>
__device__ inline void fold_block_max(float* most, float mine) {
  __shared__ float of_warp[kWarpsOfBlock];
  const WarpGroup group;
  const float largest = group.reduce_max(mine);
  if (group.lane() == 0) of_warp[threadIdx.x / WarpGroup::kLanes] = largest;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float of_block = of_warp[0];
  for (int warp = 1; warp < kWarpsOfBlock; ++warp) of_block = max_of(of_warp[warp], of_block);
  fold_max(most, of_block);
}

template <DType kTo>
MPT_HD LaneCodes codes_of(const float (&x)[kLaneCodes], float factor) {
  LaneCodes codes;
#pragma unroll
  for (int k = 0; k < kLaneCodes; k += 2)
    codes.at[k / 2] = round_pair<kTo>(x[k] * factor, x[k + 1] * factor);
  return codes;
}

// Whether every row can be accessed `bytes` at a time from its start.
inline bool is_aligned(const Tensor& t, int64_t bytes) {
  const bool rows = t.rows <= 1 || t.stride * size_of(t.dtype) % bytes == 0;
  return rows && reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(bytes) == 0;
}

// Destination of the codes of tiles, for a tensor with `rows` rows.
struct TileTargets {
  int64_t rows;
  uint8_t* target;  // null: not wanted
  int64_t stride;
  uint8_t* transposed;  // null: not wanted
  int64_t transposed_stride;
  bool packed_rows;     // lanes' parts of target rows are aligned to their size
  bool packed_columns;  // likewise for runs in rows of the transposed target

  static TileTargets of(int64_t rows, const Tensor& target, const Tensor& transposed) {
    return {.rows = rows,
            .target = target.as<uint8_t>(),
            .stride = target.stride,
            .transposed = transposed.as<uint8_t>(),
            .transposed_stride = transposed.stride,
            .packed_rows = is_aligned(target, sizeof(LaneCodes)),
            .packed_columns = is_aligned(transposed, kRun)};
  }

  // Takes a lane's codes for a row of the tile; finish() stores them transposed.
  __device__ void put(const TilePlace& place, int row, const LaneCodes& codes,
                      CodeTile& tile) const {
    const LanePart<WarpGroup> part(WarpGroup{}, place.span);
    if (target != nullptr && place.first_row + row < rows)
      write_row(place.first_row + row, part, codes);
    if (transposed == nullptr) return;
    const int col = static_cast<int>(part.col - place.span.col);
    *reinterpret_cast<LaneCodes*>(tile.code + CodeTile::offset(row, col)) = codes;
  }
  // Call when all lanes have put all rows.
  __device__ void finish(const TilePlace& place, const CodeTile& tile) const {
    if (transposed != nullptr) write_columns(place, tile);
  }

 private:
  __device__ void write_row(int64_t row, const LanePart<WarpGroup>& part,
                            const LaneCodes& codes) const {
    uint8_t* const out = target + row * stride + part.col;
    if (packed_rows && part.size == kLaneCodes) {
      *reinterpret_cast<LaneCodes*>(out) = codes;
    } else {
#pragma unroll
      for (int k = 0; k < kLaneCodes; ++k)
        if (k < part.size) out[k] = code_at(codes, k);
    }
  }
  __device__ void write_columns(const TilePlace& place, const CodeTile& tile) const {
    const int run = static_cast<int>(threadIdx.x) % kRuns;
    const int64_t first_row = place.first_row + run * kRun, left = rows - first_row;
    for (int col = static_cast<int>(threadIdx.x) / kRuns; col < place.span.count;
         col += kThreadsPerBlock / kRuns) {
      Pack<uint8_t, kRun> codes;
#pragma unroll
      for (int i = 0; i < kRun; ++i) codes.at[i] = tile.code[CodeTile::offset(run * kRun + i, col)];
      uint8_t* const out = transposed + (place.span.col + col) * transposed_stride + first_row;
      if (packed_columns && left >= kRun) {
        store_pack(out, codes);
      } else {
#pragma unroll
        for (int i = 0; i < kRun; ++i)
          if (i < left) out[i] = codes.at[i];
      }
    }
  }
};

template <DType kTo, class Codec>
struct TileCast {
  Fp8Source<Codec> source;
  Fp8CastEnds ends;
  TileTargets targets;

  __device__ void cast(int64_t block) const {
    __shared__ CodeTile tile;
    const TilePlace place(source.grid, block);
    const float factor = *ends.scale;
    float most = 0.0f;
    each_row_of_tile(source, place, [&](int row, const float(&x)[kLaneCodes]) {
      most = most_with(most, x);
      targets.put(place, row, codes_of<kTo>(x, factor), tile);
    });
    if (ends.amax != nullptr) fold_block_max(ends.amax, most);
    if (block == 0 && threadIdx.x == 0) ends.note_scale();
    __syncthreads();
    targets.finish(place, tile);
  }
};

// Thread blocks per multiprocessor: enough to keep memory busy, few enough to keep values in
// registers.
inline constexpr int kBlocksAtOnce = 3;

template <DType kTo, class Codec>
__global__ void __launch_bounds__(kThreadsPerBlock, kBlocksAtOnce)
    cast_kernel(TileCast<kTo, Codec> cast) {
  cast.cast(blockIdx.x);
}

template <class Codec>
__global__ void __launch_bounds__(kThreadsPerBlock)
    amax_kernel(Fp8Source<Codec> source, float* amax) {
  float most = 0.0f;
  each_row_of_tile(source, TilePlace(source.grid, blockIdx.x),
                   [&](int, const float(&x)[kLaneCodes]) { most = most_with(most, x); });
  fold_block_max(amax, most);
}

// Fp8Casts for any source that LaneValues can read.
template <DType kTo, class Codec>
void cast_tiles_to(cudaStream_t stream, const Fp8Source<Codec>& source, const Fp8CastCall& call) {
  check_targets(call);
  const TileCast<kTo, Codec> cast{
      .source = source,
      .ends = Fp8CastEnds::of(call),
      .targets = TileTargets::of(source.grid.rows, call.target, call.transposed)};
  launch(cast_kernel<kTo, Codec>,
         {.blocks = TilePlace::count(source.grid), .threads = kThreadsPerBlock, .stream = stream},
         cast);
}
template <class Codec>
void cast_tiles(cudaStream_t stream, const Fp8Source<Codec>& source, const Fp8CastCall& call) {
  with_fp8_type(call.format(), [&]<DType kTo> { cast_tiles_to<kTo>(stream, source, call); });
}
template <class Codec>
void gather_amax_of_tiles(cudaStream_t stream, const Fp8Source<Codec>& source,
                          const Fp8CastCall& call) {
  launch(amax_kernel<Codec>,
         {.blocks = TilePlace::count(source.grid), .threads = kThreadsPerBlock, .stream = stream},
         source, call.slot.amax);
}

}  // namespace mpt
