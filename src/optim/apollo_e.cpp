#include "optim/apollo_e.h"

#include <algorithm>

#include "core/normal.h"
#include "core/random.h"
#include "optim/optimizer_states.h"
#include "optim/update/apollo_e_on.h"

namespace mpt {

ProjectionShape projection_shape(int64_t rows, int64_t cols) {
  if (rows >= cols) return {ChannelAxis::kRows, rows, cols};
  return {ChannelAxis::kCols, cols, rows};
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
          .correction2 = bias_correction(options.bias_correction, beta2, t).value,
          .eps = float(options.eps * spread),
          .scale = options.scale == ApolloEScale::kRms ? float(spread) : 1.0f};
}

ProjectionScratch allocate_projection_scratch(const std::vector<MatrixShape>& shapes, int64_t rank,
                                              Allocator& allocator) {
  int64_t elements = 0, tiles = 0, channels = 0;
  for (const MatrixShape& matrix : shapes) {
    const ProjectionShape shape = projection_shape(matrix.rows, matrix.cols);
    elements = std::max(elements, matrix.rows * matrix.cols);
    channels = std::max(channels, shape.channels);
    if (shape.axis == ChannelAxis::kCols)
      tiles = std::max(tiles, ColumnTiles(shape.depth).count() * rank * shape.channels);
  }
  const auto row = [&](DType dtype, int64_t count) {
    return allocator.tensor(kScratchMemory, dtype, 1, count);
  };
  return {.gradient = row(DType::kF32, elements),
          .tiles = row(DType::kF32, tiles),
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

Projections::Projections(Options options, Device& device, Allocator& allocator)
    : options_(options.projection),
      rounding_(options.rounding),
      seed_(options.seed),
      device_(device),
      scalars_(allocator.pinned(kScratchMemory, DType::kU8, 1,
                                int64_t(options.targets * sizeof(ProjectionScalars)))) {
  if (!options.own_shapes.empty())
    scratch_ = allocate_projection_scratch(options.own_shapes, options_->rank, allocator);
}

void Projections::prepare(size_t index, const UpdateTarget& target, const TargetStates& states,
                          const StepScalars& step) {
  const ProjectionShape shape = projection_shape(target.weights.rows, target.weights.cols);
  scalars_.image<ProjectionScalars>()[index] = projection_scalars(*options_, step.t, shape);
  if ((step.t - 1) % options_->gap != 0) return;
  const int64_t refresh = (step.update_of_run() - 1) / options_->gap;
  const std::vector<float> p = draw_projection({.seed = seed_,
                                                .tensor = target.tensor_id,
                                                .refresh = uint32_t(refresh),
                                                .rank = options_->rank,
                                                .depth = shape.depth});
  device_.upload(reinterpret_cast<const std::byte*>(p.data()), states.projection);
}

ProjectionCall Projections::call(size_t index, const UpdateTarget& target,
                                 const TargetStates& states, const StepControl* control) const {
  return {.weights = target.weights,
          .rounding = rounding_,
          .residuals = states.residuals,
          .gradient = target.gradient,
          .control = control,
          .projection = states.projection,
          .second = states.second,
          .sharing = options_->sharing,
          .scalars = scalars_.tensor.as<ProjectionScalars>() + index,
          .scratch = scratch_};
}

}  // namespace mpt
