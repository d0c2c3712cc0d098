// Apollo-E: the second moment of M+Adam's multiplicative branch in a random subspace (docs/numerics.md
// "Apollo-E").
//
// For a matrix, j runs over the M channels of its larger side (rows if square), i over the d elements of one:
//   R_jk = sum_i P_ik G_ij,   V <- b2 V + (1 - b2) R^2,   N = R / (sqrt(V^) + eps sqrt(d / r))
//   s_j = |N_j| / |R_j| (channel), or one s = |N| / |R| for all (mini);   n_ij = alpha s_j G_ij
// with G = (ln 2 w) g. States are V, FP32 [M, r], and P, FP32, kept as [r, d] so that sums run along memory.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "comm/partition.h"
#include "core/param_spec.h"
#include "core/random.h"
#include "device/device.h"
#include "optim/optimizer_config.h"
#include "optim/update/tensor_update.h"
#include "precision/encoded_tensor.h"

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

// True for parameters whose multiplicative branch is projected: linear layers, where the config says so.
bool is_projected(const OptimizerConfig& config, ParamKind kind);

// Where such a parameter may be cut over ranks: one that is projected is not.
Cut cut_of(const OptimizerConfig& config, ParamKind kind);

inline constexpr RandomStream kProjectionStream{5};

// P of the matrix `tensor` from its refresh number `refresh` on: float(z / sqrt(rank)), as [rank, depth].
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
// Of step t, for a matrix whose projection has this shape.
ProjectionScalars projection_scalars(const ProjectionOptions& options, int64_t t,
                                     const ProjectionShape& shape);

// Memory that the tensors of a step take turns to use; each of one row, long enough for the largest.
struct ProjectionScratch {
  Tensor gradient;   // fp32: G
  Tensor tiles;      // fp32: sums over tiles of a channel
  Tensor projected;  // fp32: R
  Tensor norms;      // fp64: squares of |N_j|, then of |R_j|
  Tensor factors;    // fp32: alpha s_j
};
// For matrices of these shapes.
struct MatrixShape {
  int64_t rows, cols;
};
ProjectionScratch allocate_projection_scratch(const std::vector<MatrixShape>& shapes, int64_t rank,
                                              Allocator& allocator);

struct ProjectionCall {
  EncodedTensor weights;
  Tensor gradient;
  const StepControl* control;  // in device memory
  Tensor projection;           // [r, d]
  Tensor second;               // [M, r], updated
  ApolloE sharing = ApolloE::kChannel;
  const ProjectionScalars* scalars;  // in device memory
  ProjectionScratch scratch{};
};

// Where the step of this call finds alpha s_j after project().
SharedFactors factors_of(const ProjectionCall& call);

// What the targets of an optimizer are projected with; their states are the optimizer's.
class Projections {
 public:
  // Scratch for targets of `own_shapes`, which are updated here; scalars for every target.
  struct Options {
    std::optional<ProjectionOptions> projection;  // none: no target is projected
    uint64_t seed;
    size_t targets;
    std::vector<MatrixShape> own_shapes;
  };
  Projections(Options options, Device& device, Allocator& allocator);

  // Writes the scalars of step t, and a new P where one is due, to host memory.
  void prepare(size_t index, const UpdateTarget& target, const TargetStates& states, int64_t t);
  [[nodiscard]] const PinnedBuffer& scalars() const { return scalars_; }  // to be sent before the update
  [[nodiscard]] ProjectionCall call(size_t index, const UpdateTarget& target, const TargetStates& states,
                                    const StepControl* control) const;

 private:
  std::optional<ProjectionOptions> options_;
  uint64_t seed_;
  Device& device_;
  PinnedBuffer scalars_;  // [1, targets] of ProjectionScalars
  ProjectionScratch scratch_;
};

}  // namespace mpt
