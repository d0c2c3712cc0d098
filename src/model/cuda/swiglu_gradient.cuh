// Gradients of gate and up as FP8 codes, without their bf16 values in memory.
#pragma once

#include "model/cuda/computed_input.cuh"
#include "model/formulas/swiglu.h"

namespace mpt {

// Rows that are 16-byte aligned and a multiple of 16 bytes long.
struct PackedSwigluGradient {
  const bf16* gate_up;  // [N, 2F]
  const bf16* d_out;    // [N, F]
  int64_t cols;         // F
};

template <>
struct LaneValues<PackedSwigluGradient> {
  static constexpr int kAtOnce = 2;
  Bf16Words gate, up, d_out;

  MPT_HD void fetch(const PackedSwigluGradient& source, BlockSpan span) {
    const LanePart<WarpGroup> part(WarpGroup{}, span);
    const bf16* const from = source.gate_up + 2 * span.row * source.cols + part.col;
    gate.fetch(from, part);
    up.fetch(from + source.cols, part);
    d_out.fetch(source.d_out + span.row * source.cols + part.col, part);
  }
  // Rounded to bf16, like a gradient in memory.
  MPT_HD void get(float (&d_gate)[kLaneCodes], float (&d_up)[kLaneCodes]) const {
#pragma unroll
    for (int k = 0; k < kLaneCodes; ++k) {
      const auto d =
          swiglu_gradient(to_float(gate.at(k)), to_float(up.at(k)), to_float(d_out.at(k)));
      d_gate[k] = rounded_to<bf16>(d.gate);
      d_up[k] = rounded_to<bf16>(d.up);
    }
  }
};

// A thread block has the same tile of gates and of ups, so both are read once.
template <DType kTo>
struct SwigluGradientTiles {
  PackedSwigluGradient source;
  BlockGrid grid;  // of d_out
  Fp8CastEnds ends;
  TileTargets gate, up;

  __device__ void cast(int64_t block) const {
    using Values = LaneValues<PackedSwigluGradient>;
    __shared__ CodeTile of_gate, of_up;
    const TilePlace place(grid, block);
    const float factor = *ends.scale;
    float most = 0.0f;
    each_fetched_row<Values>(source, grid.rows, place, [&](int row, const Values& fetched) {
      float d_gate[kLaneCodes], d_up[kLaneCodes];
      fetched.get(d_gate, d_up);
      most = most_with(most_with(most, d_gate), d_up);
      gate.put(place, row, codes_of<kTo>(d_gate, factor), of_gate);
      up.put(place, row, codes_of<kTo>(d_up, factor), of_up);
    });
    if (ends.amax != nullptr) fold_block_max(ends.amax, most);
    if (block == 0 && threadIdx.x == 0) ends.note_scale();
    __syncthreads();
    gate.finish(place, of_gate);
    up.finish(place, of_up);
  }
};

template <DType kTo>
__global__ void __launch_bounds__(kThreadsPerBlock, kBlocksAtOnce)
    swiglu_gradient_kernel(SwigluGradientTiles<kTo> tiles) {
  tiles.cast(blockIdx.x);
}

}  // namespace mpt
