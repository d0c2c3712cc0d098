// Apollo-E: the second moment of M+Adam's multiplicative branch in a random subspace
// (docs/numerics.md "Apollo-E").
//
// For a matrix, j runs over the M channels of its larger side (rows if square), i over the d
// elements of a channel:
//   R_jk = sum_i P_ik G_ij,   V <- b2 V + (1 - b2) R^2,   N = R / (sqrt(V^) + eps sqrt(d / r))
//   s_j = |N_j| / |R_j| (channel), or a single s = |N| / |R| (mini);   n_ij = alpha s_j G_ij
// with G = (ln 2 w) g. States: V, FP32 [M, r], and P, FP32, stored as [r, d] so that sums
// read contiguous memory.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/param_spec.h"
#include "core/random.h"
#include "device/device.h"
#include "optim/optimizer_config.h"
#include "optim/update/tensor_update.h"
#include "precision/encoded_tensor.h"
#include "ranks/partition.h"

namespace mpt {

struct TargetStates;
struct UpdateTarget;

enum class ChannelAxis : uint8_t { kRows, kCols };

struct ProjectionShape {
  ChannelAxis axis;
  int64_t channels;  // M
  int64_t depth;     // d
};
ProjectionShape projection_shape(int64_t rows, int64_t cols);

inline constexpr RandomStream kProjectionStream{5};

// P of the matrix `tensor` after refresh number `refresh`: float(z / sqrt(rank)), [rank, depth].
struct ProjectionDraw {
  uint64_t seed;
  uint32_t tensor;
  uint32_t refresh;
  int64_t rank, depth;
};
std::vector<float> draw_projection(const ProjectionDraw& draw);

struct ProjectionScalars {
  float beta2, one_minus_beta2, correction2;
  float eps;    // eps sqrt(d / r)
  float scale;  // alpha
};
// The scalars of step t for a matrix of this projection shape.
ProjectionScalars projection_scalars(const ProjectionOptions& options, int64_t t,
                                     const ProjectionShape& shape);

// Scratch shared by the projected tensors of a step, which use it one after another; each buffer
// has one row, sized for the largest tensor.
struct ProjectionScratch {
  Tensor gradient;   // fp32: G
  Tensor tiles;      // fp32: sums over tiles of a channel
  Tensor projected;  // fp32: R
  Tensor norms;      // fp64: squares of |N_j|, then of |R_j|
  Tensor factors;    // fp32: alpha s_j
};
// Shape of a projected matrix.
struct MatrixShape {
  int64_t rows, cols;
};
ProjectionScratch allocate_projection_scratch(const std::vector<MatrixShape>& shapes, int64_t rank,
                                              Allocator& allocator);

struct ProjectionCall {
  EncodedTensor weights;
  WeightRounding rounding;
  Tensor residuals;  // kept by `rounding`, if any
  Tensor gradient;
  const StepControl* control;  // in device memory
  Tensor projection;           // [r, d]
  Tensor second;               // [M, r], updated
  ApolloE sharing = ApolloE::kChannel;
  const ProjectionScalars* scalars;  // in device memory
  ProjectionScratch scratch{};
};

// The factors alpha s_j that project() computes for this call.
SharedFactors factors_of(const ProjectionCall& call);

// Projections of an optimizer's targets. The optimizer owns their states.
class Projections {
 public:
  // Scratch is sized for `own_shapes`, the targets updated on this rank; scalars exist for every
  // target.
  struct Options {
    std::optional<ProjectionOptions> projection;  // nullopt: no target is projected
    WeightRounding rounding;
    uint64_t seed;
    size_t targets;
    std::vector<MatrixShape> own_shapes;
  };
  Projections(Options options, Device& device, Allocator& allocator);

  // Writes the step's scalars to host memory and uploads a new P when one is due.
  void prepare(size_t index, const UpdateTarget& target, const TargetStates& states,
               const StepScalars& step);
  [[nodiscard]] const PinnedBuffer& scalars() const { return scalars_; }  // upload before update
  [[nodiscard]] ProjectionCall call(size_t index, const UpdateTarget& target,
                                    const TargetStates& states, const StepControl* control) const;

 private:
  std::optional<ProjectionOptions> options_;
  WeightRounding rounding_;
  uint64_t seed_;
  Device& device_;
  PinnedBuffer scalars_;  // [1, targets] of ProjectionScalars
  ProjectionScratch scratch_;
};

}  // namespace mpt
