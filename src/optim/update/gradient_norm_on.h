// Global gradient norm: sums of squares by reduction tile, added in an order that depends only on
// the model, then the clipping factor and the step decision (docs/numerics.md "Norm and clipping").
#pragma once

#include <type_traits>

#include "core/prefetch.h"
#include "optim/gradient_norm.h"
#include "optim/update/tensor_inputs.h"
#include "optim/update/tensor_table.h"
#include "precision/codec.h"

namespace mpt {

// Sum of squares of the first `count` of kPart numbers, in FP64: running sums that vectorize, then
// a tree. A lane that owns whole update blocks prefetches later ones.
template <int kPart, class T>
MPT_HD double square_sum(const T* x, int count) {
  constexpr int kRunning = kPart < 32 ? kPart : 32;
  double running[kRunning] = {};
  const int whole = count / kRunning * kRunning;
  for (int first = 0; first < whole; first += kRunning) {
    if constexpr (kPart == kUpdateBlock) prefetch_ahead<kRunning>(x + first);
#pragma omp simd
    for (int j = 0; j < kRunning; ++j)
      running[j] += double(to_float(x[first + j])) * double(to_float(x[first + j]));
  }
  for (int k = whole; k < count; ++k)
    running[k - whole] += double(to_float(x[k])) * double(to_float(x[k]));
  for (int width = kRunning / 2; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) running[j] += running[j + width];
  return running[0];
}

// Sum of squares of one tile of a tensor, in FP64.
template <class Codec>
struct SquareSum {
  BlockGrid grid;
  Codec codec;
  double* partial;
  int64_t shift;  // tile i's sum is partial[i + shift]

  template <class G>
  MPT_HD void operator()(G group, int64_t tile) const {
    const int64_t end = min_of((tile + 1) * kBlocksPerTile, grid.blocks());
    double total = 0.0;
    for (int64_t block = tile * kBlocksPerTile; block < end; ++block)
      total += of_block(group, grid.span(block));
    if (group.lane() == 0) partial[tile + shift] = total;
  }

 private:
  template <class G>
  MPT_HD double of_block(G group, BlockSpan span) const {
    constexpr int kPart = LanePart<G>::kSize;
    if constexpr (G::kLanes == 1 && std::is_same_v<Codec, ElementCodec>) {
      const auto count = int(span.count);
      return codec.dtype == DType::kF32
                 ? square_sum<kPart>(codec.template elements<const float>(span), count)
                 : square_sum<kPart>(codec.template elements<const bf16>(span), count);
    }
    float x[kPart];
    codec.load(group, span, x);
    // Each lane sums its own part, then the group sums the lanes.
    const double mine = square_sum<kPart>(x, kPart);
    if constexpr (G::kLanes == 1)
      return mine;
    else
      return group.sum(G::kLanes, [mine](int64_t) { return mine; });
  }
};

// sums[i]: sum of tiles [i kTiles, (i + 1) kTiles) in the numbering over all tensors, wherever they
// are stored.
struct SumOfTiles {
  static constexpr int64_t kTiles = 1024;

  const double* partial;
  int64_t tiles;
  const TileSpan* spans;
  int64_t span_count;
  double* sums;

  template <class G>
  MPT_HD void operator()(G group, int64_t i) const {
    const int64_t first = i * kTiles, count = span_count;
    const double* const squares = partial;
    const TileSpan* const span = spans;
    const double sum = group.sum(min_of(kTiles, tiles - first), [=](int64_t k) {
      const int64_t tile = first + k;
      return squares[tile +
                     span[last_from(count, tile, [=](int64_t j) { return span[j].tile; })].shift];
    });
    if (group.lane() == 0) sums[i] = sum;
  }
};

// Writes the global norm, the clipping factor and whether the step proceeds.
struct ComputeClip {
  const double* sums;
  int64_t sum_count;
  const double* losses;
  int64_t loss_count;
  double clip_grad_norm;
  const StepLimits* limits;
  StepControl* control;

  template <class G>
  MPT_HD void operator()(G group, int64_t) const {
    const double *const squares = sums, *const loss = losses;
    const double norm = std::sqrt(group.sum(sum_count, [=](int64_t i) { return squares[i]; }));
    const double nan_or_0 = group.sum(loss_count, [=](int64_t i) { return loss[i] - loss[i]; });
    const double loss_sum = group.sum(loss_count, [=](int64_t i) { return loss[i]; });
    if (group.lane() != 0) return;
    const bool finite = nan_or_0 + (norm - norm) == 0.0,
               beyond = norm > limits->grad_norm || loss_sum > limits->loss_sum;
    *control = {.grad_norm = norm,
                .grad_scale = clip_scale(clip_grad_norm, norm),
                .proceed = finite && !beyond};
  }
};

}  // namespace mpt
