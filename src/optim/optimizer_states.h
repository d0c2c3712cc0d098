// Optimizer states kept between steps: moments, residuals, projections and the RMS of the initial
// weights. Allocates the states and names them for checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/named_tensor.h"
#include "core/param_spec.h"
#include "core/tensor.h"
#include "device/device.h"
#include "device/memory.h"
#include "optim/optimizer_config.h"
#include "precision/encoded_tensor.h"
#include "precision/format.h"
#include "ranks/partition.h"

namespace mpt {

inline constexpr MemoryPurpose kOptimizerStateMemory{"optimizer state"};

// A parameter as the optimizer sees it: logical views of its weights and gradient.
struct UpdateTarget {
  std::string name;
  ParamKind kind;
  uint32_t tensor_id;  // for random counters
  EncodedTensor weights;
  Tensor gradient;
};

// Source of a parameter's directions: linear layers may be projected (Apollo-E) or orthogonalized,
// which takes a whole matrix.
Moments moments_of(const OptimizerConfig& config, ParamKind kind);

// Where a parameter may be split over ranks: between tiles, or nowhere if its whole matrix is
// needed.
Cut cut_of(const OptimizerConfig& config, ParamKind kind);

// States of one target. If this rank updates none of its blocks, the tensors have a shape but no
// memory.
struct TargetStates {
  BlockRange blocks;  // updated here
  Moments source = Moments::kDense;
  std::span<const StateInfo> infos;
  std::vector<Tensor> moments;  // in the order of `infos`
  std::optional<ResidualInfo> residual;
  Tensor residuals;           // for roundings that keep one
  Tensor second, projection;  // Apollo-E: V [M, r] and P [r, d]

  [[nodiscard]] bool projected() const { return source == Moments::kProjected; }
  [[nodiscard]] bool orthogonalized() const { return source == Moments::kOrthogonalized; }
  // Never split over ranks, and updated by itself.
  [[nodiscard]] bool whole() const { return source != Moments::kDense; }
};

class OptimizerStates {
 public:
  // Plans the states of `blocks`, one range per target, or allocates them zeroed; moments are
  // stored in `format`. `targets` must outlive this object.
  OptimizerStates(const OptimizerConfig& config, Format format,
                  std::span<const UpdateTarget> targets, const std::vector<BlockRange>& blocks,
                  Allocator& allocator);

  const TargetStates& operator[](size_t target) const { return states_[target]; }

  // RMS of every target's initial weights, the unit of weight bounds.
  [[nodiscard]] bool keeps_init_rms() const { return init_rms_.rows > 0; }
  [[nodiscard]] float init_rms(size_t target) const { return host_init_rms_[target]; }
  void set_init_rms(std::vector<float> values, Device& device);
  void read_init_rms(Device& device);  // after loading a checkpoint

  // Own elements of every state: "<state>/<parameter>".
  [[nodiscard]] std::vector<TensorPart> parts_of_targets() const;
  // parts_of_targets() and init_rms, which belongs to no target.
  [[nodiscard]] std::vector<TensorPart> all_parts() const;

 private:
  std::span<const UpdateTarget> targets_;
  std::vector<TargetStates> states_;
  Tensor init_rms_;  // [1, targets] fp32
  std::vector<float> host_init_rms_;
};

}  // namespace mpt
