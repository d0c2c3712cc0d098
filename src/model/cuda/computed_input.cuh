// Outputs of SwiGLU and RMSNorm as read by a cast's tiles (precision/fp8_cast.cuh): 16-byte loads,
// several rows of them in flight before the first row is computed.
#pragma once

#include "model/formulas/computed_input.h"
#include "precision/fp8_cast.cuh"

namespace mpt {

// Rows that are 16-byte aligned and a multiple of 16 bytes long.
struct PackedSwiglu {
  SwigluSource rows;
};
struct PackedNorm {
  NormSource rows;
};

// Eight consecutive values as stored.
struct Bf16Words {
  Pack<uint32_t, kLaneCodes / 2> words;

  // Zeros if the lane's part is empty.
  MPT_HD void fetch(const bf16* from, const LanePart<WarpGroup>& part) {
    if (part.size > 0)
      words = load_pack<kLaneCodes / 2>(reinterpret_cast<const uint32_t*>(from));
    else
      words = {};
  }
  MPT_HD bf16 at(int k) const { return {static_cast<uint16_t>(words.at[k / 2] >> (k % 2 * 16))}; }
};

template <>
struct LaneValues<PackedSwiglu> {
  static constexpr int kAtOnce = 2;
  Bf16Words gate, up;

  MPT_HD void fetch(const PackedSwiglu& source, BlockSpan span) {
    const LanePart<WarpGroup> part(WarpGroup{}, span);
    const bf16* const from = source.rows.gate_up + 2 * span.row * source.rows.cols + part.col;
    gate.fetch(from, part);
    up.fetch(from + source.rows.cols, part);
  }
  MPT_HD void get(float (&values)[kLaneCodes]) const {
#pragma unroll
    for (int k = 0; k < kLaneCodes; ++k)
      values[k] = swiglu(to_float(gate.at(k)), to_float(up.at(k)));
  }
};

template <>
struct LaneValues<PackedNorm> {
  static constexpr int kAtOnce = 4;
  Bf16Words x, gain;
  float inverse;

  MPT_HD void fetch(const PackedNorm& source, BlockSpan span) {
    const LanePart<WarpGroup> part(WarpGroup{}, span);
    x.fetch(source.rows.x + span.row * source.rows.cols + part.col, part);
    gain.fetch(source.rows.gain + part.col, part);  // the same in every row, so it hits L1
    inverse = source.rows.inv_rms[span.row];
  }
  MPT_HD void get(float (&values)[kLaneCodes]) const {
#pragma unroll
    for (int k = 0; k < kLaneCodes; ++k) values[k] = rms_normed(x.at(k), inverse, gain.at(k));
  }
};

}  // namespace mpt
