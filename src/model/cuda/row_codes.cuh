// FP8 codes of rows that teams of warps hold in registers, for kernels that cast their own output.
// Codes and amax equal those of a cast from memory.
#pragma once

#include "device/cuda/cuda_exec.cuh"
#include "precision/fp8_cast.cuh"

namespace mpt {

// Codes of some rows in shared memory, for the transposed store. Runs of kRun rows start in
// different banks, so threads that collect neighboring runs do not conflict.
struct RowTile {
  static constexpr int kShift = 64, kWord = 4;
  // Two runs fill a memory sector. More shared memory would leave too few blocks resident.
  static constexpr int64_t kMostForTwo = 33 << 10, kMost = kDefaultSharedBytes - 1024;

  uint8_t* codes;
  int cols;

  MPT_HD int offset(int row, int col) const { return row * cols + row / kRun * kShift + col; }

  static int64_t bytes(int rows, int64_t cols) { return rows * cols + rows / kRun * kShift; }
  static int rows(int64_t cols) { return bytes(2 * kRun, cols) <= kMostForTwo ? 2 * kRun : kRun; }
};

template <DType kTo, class Team>
class RowCodesWriter;

template <DType kTo>
struct RowCodes {
  template <class Team>
  using Writer = RowCodesWriter<kTo, Team>;

  Fp8CastEnds ends;
  TileTargets targets;  // with packed rows and columns
  int tile_rows;
  Format through;

  static RowCodes of(const Fp8CastCall& call) {
    return {.ends = Fp8CastEnds::of(call),
            .targets = TileTargets::of(call.source.rows, call.target, call.transposed),
            .tile_rows = RowTile::rows(call.source.cols),
            .through = call.through};
  }
  MPT_HD void pass_through(Pack<float, kLaneCodes>& x) const {
    if (through == Format::kBF16) x = to_floats(from_floats<bf16>(x));
  }
  // Whether tiles fit, for rows of whole packs.
  [[nodiscard]] bool fits(int64_t cols) const {
    return targets.packed_rows && targets.packed_columns && cols % kLaneCodes == 0 &&
           shared_bytes(cols) <= RowTile::kMost;
  }
  [[nodiscard]] int64_t shared_bytes(int64_t cols) const {
    return targets.transposed == nullptr ? 0 : RowTile::bytes(tile_rows, cols);
  }
};

// Same interface as RowByRow::Writer.
template <DType kTo, class Team>
class RowCodesWriter {
 public:
  static constexpr bool kTiles = true;

  __device__ RowCodesWriter(const RowCodes<kTo>& codes, int64_t cols)
      : codes_(codes), tile_{dynamic_shared<uint8_t>(), int(cols)}, factor_(*codes.ends.scale) {}

  __device__ int tile_rows() const { return codes_.tile_rows; }

  __device__ void put(int64_t row, int in_tile, int pack, Pack<float, kLaneCodes> x) {
    codes_.pass_through(x);
    most_ = most_with(most_, x.at);
    const LaneCodes codes = codes_of<kTo>(x.at, factor_);
    const TileTargets& to = codes_.targets;
    if (to.target != nullptr)
      store_pack(reinterpret_cast<uint16_t*>(to.target + row * to.stride), pack, codes);
    if (to.transposed != nullptr)
      *reinterpret_cast<LaneCodes*>(tile_.codes + tile_.offset(in_tile, pack * kLaneCodes)) = codes;
  }
  __device__ void end_tile(int64_t first, int64_t end) const {
    if (codes_.targets.transposed == nullptr) return;
    __syncthreads();
    const int runs = codes_.tile_rows / kRun, items = tile_.cols / RowTile::kWord * runs;
    for (int i = int(threadIdx.x); i < items; i += Team::kThreads) {
      const int run = i % runs;
      const auto left = static_cast<int>(min_of<int64_t>(end - first - run * kRun, kRun));
      if (left > 0) store_columns(first + run * kRun, run * kRun, i / runs * RowTile::kWord, left);
    }
    __syncthreads();
  }
  __device__ void end() const {
    if (codes_.ends.amax != nullptr)
      fold_block_max<Team::kThreads / WarpGroup::kLanes>(codes_.ends.amax, most_);
    if (blockIdx.x == 0 && threadIdx.x == 0) codes_.ends.note_scale();
  }

 private:
  // Stores `left` rows of a word of columns, from `in_tile` on.
  __device__ void store_columns(int64_t row, int in_tile, int col, int left) const {
    uint32_t words[kRun];
#pragma unroll
    for (int r = 0; r < kRun; ++r)
      words[r] =
          r < left
              ? *reinterpret_cast<const uint32_t*>(tile_.codes + tile_.offset(in_tile + r, col))
              : 0;
#pragma unroll
    for (int k = 0; k < RowTile::kWord; ++k) {
      Pack<uint8_t, kRun> run;
#pragma unroll
      for (int r = 0; r < kRun; ++r) run.at[r] = static_cast<uint8_t>(words[r] >> (8 * k));
      uint8_t* const out =
          codes_.targets.transposed + (col + k) * codes_.targets.transposed_stride + row;
      if (left == kRun) {
        store_pack(out, run);
      } else {
#pragma unroll
        for (int r = 0; r < kRun; ++r)
          if (r < left) out[r] = run.at[r];
      }
    }
  }

  const RowCodes<kTo>& codes_;  // a parameter of the kernel
  RowTile tile_;
  float factor_, most_ = 0.0f;
};

}  // namespace mpt
