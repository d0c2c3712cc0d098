// Passes of Apollo-E over a matrix before its update, for any Exec.
//
// G is written once to FP32 scratch, because R reads it in a different order than the update does.
// The order of every sum depends only on the shape, except that a row's sum also depends on the
// group: a device with more lanes rounds R differently. Norms are FP64, because squares of R can
// underflow FP32.
#pragma once

#include "optim/apollo_e.h"
#include "optim/rules/m_plus_adam.h"

namespace mpt {

// Weights is a codec or ExactWeights.
template <class Weights>
struct ExponentGradient {
  BlockGrid grid;
  Weights weights;
  ElementCodec gradient;
  const StepControl* control;
  float* result;  // [rows, cols]

  template <class G>
  MPT_HD void operator()(G group, int64_t block) const {
    const BlockSpan span = grid.span(block);
    const LanePart<G> part(group, span);
    float w[LanePart<G>::kSize], g[LanePart<G>::kSize];
    weights.load(group, span, w);
    gradient.load(group, span, g);
    float* const out = result + span.row * grid.cols + part.col;
    const float grad_scale = control->grad_scale;
#pragma omp simd
    for (int k = 0; k < part.size; ++k) out[k] = exponent_gradient(w[k], grad_scale * g[k]);
  }
};

// R for row channels: one dot product per k.
struct ProjectRow {
  const float* gradient;    // [M, d]
  const float* projection;  // [r, d]
  int64_t depth, rank;
  float* projected;  // [M, r]

  template <class G>
  MPT_HD void operator()(G group, int64_t j) const {
    const float* const row = gradient + j * depth;
    for (int64_t k = 0; k < rank; ++k) {
      const float* const p = projection + k * depth;
      const float sum = group.sum(depth, [=](int64_t i) { return p[i] * row[i]; });
      if (group.lane() == 0) projected[j * rank + k] = sum;
    }
  }
};

// Splits the rows of a matrix with column channels into tiles that are summed independently.
struct ColumnTiles {
  static constexpr int64_t kRows = 32;
  int64_t depth;

  explicit ColumnTiles(int64_t rows) : depth(rows) {}
  [[nodiscard]] MPT_HD int64_t count() const { return (depth + kRows - 1) / kRows; }
};

// Sums over one tile for an update block of channels; each lane owns its channels.
struct ProjectColumnTiles {
  const float* gradient;    // [d, M]
  const float* projection;  // [r, d]
  ColumnTiles tiles;
  BlockGrid grid;  // [tiles, M]
  int64_t rank;
  float* sums;  // [tiles, r, M]

  template <class G>
  MPT_HD void operator()(G group, int64_t block) const {
    const BlockSpan span = grid.span(block);
    const LanePart<G> part(group, span);
    const int64_t first = span.row * ColumnTiles::kRows;
    const int64_t end = min_of(first + ColumnTiles::kRows, tiles.depth);
    for (int64_t k = 0; k < rank; ++k) {
      float sum[LanePart<G>::kSize] = {};
      for (int64_t i = first; i < end; ++i)
        add_scaled(projection[k * tiles.depth + i], gradient + i * grid.cols + part.col, part.size,
                   sum);
      float* const out = sums + (span.row * rank + k) * grid.cols + part.col;
      for (int e = 0; e < part.size; ++e) out[e] = sum[e];
    }
  }

 private:
  template <int kSize>
  MPT_HD static void add_scaled(float p, const float* row, int size, float (&sum)[kSize]) {
#pragma omp simd
    for (int e = 0; e < size; ++e) sum[e] = sum[e] + p * row[e];
  }
};

// R for column channels: adds the tile sums in order.
struct SumColumnTiles {
  const float* sums;  // [tiles, r, M]
  int64_t tiles, rank, channels;
  float* projected;  // [M, r]

  MPT_HD void operator()(int64_t index) const {
    const int64_t j = index % channels, k = index / channels;
    float sum = 0.0f;
    for (int64_t tile = 0; tile < tiles; ++tile) sum += sums[(tile * rank + k) * channels + j];
    projected[j * rank + k] = sum;
  }
};

// Updates V of one channel and computes |N_j|^2 and |R_j|^2.
struct ProjectedMoments {
  const float* projected;  // [M, r]
  const ProjectionScalars* of_step;
  const StepControl* control;
  int64_t rank, channels;
  float* second;  // [M, r]
  double* norms;  // [2, M]

  MPT_HD void operator()(int64_t j) const {
    if (control->proceed == 0) return;
    const ProjectionScalars scalars = *of_step;
    double normalised = 0, plain = 0;
    for (int64_t index = j * rank; index < (j + 1) * rank; ++index) {
      const float x = projected[index];
      const float v =
          EmaOnce::mean_square(scalars.beta2, scalars.one_minus_beta2, x, second[index]);
      second[index] = v;
      const float n = x / (std::sqrt(v / scalars.correction2) + scalars.eps);
      normalised += double(n) * double(n);
      plain += double(x) * double(x);
    }
    norms[j] = normalised;
    norms[channels + j] = plain;
  }
};

MPT_HD float shared_factor(double normalised, double plain, float scale) {
  return plain > 0 ? scale * static_cast<float>(std::sqrt(normalised) / std::sqrt(plain)) : 0.0f;
}

struct ChannelFactors {
  const double* norms;  // [2, M]
  int64_t channels;
  const ProjectionScalars* of_step;
  float* factors;  // [M]

  MPT_HD void operator()(int64_t j) const {
    factors[j] = shared_factor(norms[j], norms[channels + j], of_step->scale);
  }
};

// A single factor for all channels.
struct MatrixFactor {
  const double* norms;  // [2, M]
  int64_t channels;
  const ProjectionScalars* of_step;
  float* factor;

  template <class G>
  MPT_HD void operator()(G group, int64_t) const {
    const double* const squares = norms;
    const int64_t m = channels;
    const double normalised = group.sum(m, [=](int64_t j) { return squares[j]; });
    const double plain = group.sum(m, [=](int64_t j) { return squares[m + j]; });
    if (group.lane() == 0) *factor = shared_factor(normalised, plain, of_step->scale);
  }
};

}  // namespace mpt
