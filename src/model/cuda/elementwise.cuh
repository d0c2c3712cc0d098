// RoPE, SwiGLU and rounding on a GPU: each thread computes one pack of elements.
#pragma once

#include "device/cuda/block_kernels.cuh"
#include "model/formulas/rope.h"
#include "model/formulas/swiglu.h"

namespace mpt {

// Item i: kPackOf<T> neighboring pairs of a head in the first half of an even number of heads, and
// of the same head in the second half; both rotate by the same angles.
template <class T>
struct RopePacks {
  Rope<T> rope;

  static constexpr int kWidth = kPackOf<T>;

  // Items of one token.
  [[nodiscard]] MPT_HD int64_t items() const { return rope.rotated_heads / 2 * packs_of_half(); }

  MPT_HD void operator()(int64_t i) const {
    const int64_t half = packs_of_half(), token = i / items(), in_token = i - token * items();
    const int64_t head = in_token / half, in_head = in_token - head * half;
    const int64_t angle = rope.position_of(token) * half + in_head;
    const int64_t lower = token * (rope.stride / kWidth) + 2 * head * half + in_head,
                  upper = lower + rope.rotated_heads * half;
    Pack<T, kWidth> pairs[2][2] = {
        {load_pack<kWidth>(rope.qkv, lower), load_pack<kWidth>(rope.qkv, lower + half)},
        {load_pack<kWidth>(rope.qkv, upper), load_pack<kWidth>(rope.qkv, upper + half)}};
    const auto cosine = load_pack<kWidth>(rope.cosine, angle),
               sine = load_pack<kWidth>(rope.sine, angle);
#pragma unroll
    for (int x = 0; x < 2; ++x)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        T &first = pairs[x][0].at[j], &second = pairs[x][1].at[j];
        const RotatedPair y =
            rotated(to_float(first), to_float(second), cosine.at[j], rope.direction * sine.at[j]);
        first = from_float<T>(y.first);
        second = from_float<T>(y.second);
      }
    store_pack(rope.qkv, lower, pairs[0][0]);
    store_pack(rope.qkv, lower + half, pairs[0][1]);
    store_pack(rope.qkv, upper, pairs[1][0]);
    store_pack(rope.qkv, upper + half, pairs[1][1]);
  }

 private:
  [[nodiscard]] MPT_HD int64_t packs_of_half() const { return rope.head_dim / 2 / kWidth; }
};

// Pack i of the output. Sink::put(row, pack, y) receives the results.
template <class T, class Sink>
struct SwigluForwardPacks {
  const T* gate_up;  // [N, 2 cols]
  int64_t cols;
  Sink sink;

  MPT_HD void operator()(int64_t i) const {
    constexpr int kWidth = kPackOf<T>;
    const int64_t packs = cols / kWidth, row = i / packs, gate_at = i + row * packs;
    const auto gate = to_floats(load_pack<kWidth>(gate_up, gate_at)),
               up = to_floats(load_pack<kWidth>(gate_up, gate_at + packs));
    Pack<float, kWidth> y;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) y.at[j] = swiglu(gate.at[j], up.at[j]);
    sink.put(row, i - row * packs, y);
  }
};

// Pack i of d_out.
template <class T>
struct SwigluBackwardPacks {
  SwigluBackward<T> rows;

  MPT_HD void operator()(int64_t i) const {
    constexpr int kWidth = kPackOf<T>;
    const int64_t packs = rows.cols / kWidth, gate_at = i + i / packs * packs,
                  up_at = gate_at + packs;
    auto gate = to_floats(load_pack<kWidth>(rows.gate_up, gate_at)),
         up = to_floats(load_pack<kWidth>(rows.gate_up, up_at));
    const auto dy = to_floats(load_pack<kWidth>(rows.d_out, i));
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const auto d = swiglu_gradient(gate.at[j], up.at[j], dy.at[j]);
      gate.at[j] = d.gate;
      up.at[j] = d.up;
    }
    store_pack(rows.gate_up, gate_at, from_floats<T>(gate));
    store_pack(rows.gate_up, up_at, from_floats<T>(up));
  }
};

// Pack i of `count` numbers; the last may be shorter.
struct RoundPacksToBf16 {
  float* data;
  int64_t count;

  static constexpr int kWidth = kPackOf<float>;

  MPT_HD void operator()(int64_t i) const {
    const int64_t first = i * kWidth;
    if (first + kWidth > count) {
      for (int64_t j = first; j < count; ++j) data[j] = rounded_to<bf16>(data[j]);
      return;
    }
    store_pack(data, i, to_floats(from_floats<bf16>(load_pack<kWidth>(data, i))));
  }
};

}  // namespace mpt
