#include "optim/apollo_e.h"

#include <algorithm>

#include "core/random.h"
#include "optim/apollo_e_on.h"

namespace mpt {

ProjectionShape projection_shape(int64_t rows, int64_t cols) {
  if (rows >= cols) return {ChannelAxis::kRows, rows, cols};
  return {ChannelAxis::kCols, cols, rows};
}

bool is_projected(const OptimizerConfig& config, ParamKind kind) {
  return kind == ParamKind::kLinear && projection_options(config.rule).has_value();
}

Cut cut_of(const OptimizerConfig& config, ParamKind kind) {
  return is_projected(config, kind) ? Cut::kNowhere : Cut::kBetweenPieces;
}

std::vector<float> draw_projection(const ProjectionDraw& draw) {
  std::vector<float> p(size_t(draw.rank * draw.depth));
  const double root = std::sqrt(double(draw.rank));
  for (int64_t i = 0; i < draw.depth; ++i) {
    const RandomCounter row{draw.seed, draw.tensor, uint32_t(i), draw.refresh, kProjectionStream};
    for (int64_t first = 0; first < draw.rank; first += 4) {
      const std::array<double, 4> z = normals_of(row.block(uint32_t(first / 4)));
      for (int64_t k = first; k < std::min(first + 4, draw.rank); ++k)
        p[size_t(k * draw.depth + i)] = float(z[size_t(k - first)] / root);
    }
  }
  return p;
}

ProjectionScalars projection_scalars(const ProjectionOptions& options, int64_t t,
                                     const ProjectionShape& shape) {
  const float beta2 = float(options.beta2);
  const double spread = std::sqrt(double(shape.depth) / double(options.rank));
  return {.beta2 = beta2,
          .one_minus_beta2 = 1.0f - beta2,
          .correction2 = bias_correction(options.bias_correction, beta2, t),
          .eps = float(options.eps * spread),
          .scale = options.scale == ApolloEScale::kRms ? float(spread) : 1.0f};
}

ProjectionScratch allocate_projection_scratch(const std::vector<MatrixShape>& shapes, int64_t rank,
                                              Allocator& allocator) {
  int64_t elements = 0, pieces = 0, channels = 0;
  for (const MatrixShape& matrix : shapes) {
    const ProjectionShape shape = projection_shape(matrix.rows, matrix.cols);
    elements = std::max(elements, matrix.rows * matrix.cols);
    channels = std::max(channels, shape.channels);
    if (shape.axis == ChannelAxis::kCols)
      pieces = std::max(pieces, ColumnPieces(shape.depth).count() * rank * shape.channels);
  }
  const auto row = [&](DType dtype, int64_t count) {
    return allocator.tensor(Purpose::kScratch, dtype, 1, count);
  };
  return {.gradient = row(DType::kF32, elements),
          .pieces = row(DType::kF32, pieces),
          .projected = row(DType::kF32, channels * rank),
          .norms = row(DType::kF64, 2 * channels),
          .factors = row(DType::kF32, channels)};
}

SharedFactors factors_of(const ProjectionCall& call) {
  const ProjectionShape shape = projection_shape(call.weights.rows, call.weights.cols);
  const bool shared = call.sharing == ApolloE::kMini;
  return {.values = call.scratch.factors.as<float>(),
          .row_step = !shared && shape.axis == ChannelAxis::kRows,
          .col_step = !shared && shape.axis == ChannelAxis::kCols};
}

}  // namespace mpt
