#include "optim/optimizer_states.h"

#include "optim/apollo_e.h"

namespace mpt {

Moments moments_of(const OptimizerConfig& config, ParamKind kind) {
  if (kind != ParamKind::kLinear) return Moments::kDense;
  if (projection_options(config.rule)) return Moments::kProjected;
  return orthogonalization_options(config.rule) ? Moments::kOrthogonalized : Moments::kDense;
}

Cut cut_of(const OptimizerConfig& config, ParamKind kind) {
  return moments_of(config, kind) == Moments::kDense ? Cut::kBetweenTiles : Cut::kNowhere;
}

namespace {

// Allocates tensors for the states of one target.
class StateAllocation {
 public:
  StateAllocation(const UpdateTarget& target, BlockRange blocks, Allocator& allocator)
      : target_(target),
        blocks_(blocks),
        elsewhere_(blocks.empty() && target.weights.elements() > 0),
        allocator_(allocator) {}

  // One element per weight, laid out like the gradient, for own update blocks only.
  [[nodiscard]] Tensor like_weights(DType dtype) const {
    const Tensor& g = target_.gradient;
    if (elsewhere_ || blocks_ == all_blocks(target_.weights.rows, target_.weights.cols))
      return whole(dtype, g.rows, g.stride).columns(0, g.cols);
    const Tensor shape{nullptr, dtype, g.rows, g.cols, g.stride};
    const int64_t count = span_of(shape, {g.rows, g.cols}, blocks_).cols;
    return whole_of_span(allocator_.tensor(kOptimizerStateMemory, dtype, 1, count), shape, blocks_);
  }
  [[nodiscard]] Tensor whole(DType dtype, int64_t rows, int64_t cols) const {
    if (elsewhere_) return Tensor{nullptr, dtype, rows, cols, cols};
    return allocator_.tensor(kOptimizerStateMemory, dtype, rows, cols);
  }

 private:
  const UpdateTarget& target_;
  BlockRange blocks_;
  bool elsewhere_;  // this rank has no update blocks: shapes only
  Allocator& allocator_;
};

TargetStates allocate_states(const OptimizerConfig& config, Format format,
                             const UpdateTarget& target, BlockRange blocks, Allocator& allocator) {
  const StateAllocation allocation(target, blocks, allocator);
  TargetStates states;
  states.blocks = blocks;
  states.source = moments_of(config, target.kind);
  states.infos = states_of(config.rule, {.rank = target.weights.rank, .moments = states.source});
  for (size_t i = 0; i < states.infos.size(); ++i)
    states.moments.push_back(allocation.like_weights(dtype_of(format)));
  states.residual = residual_of(config.weight_rounding);
  if (states.residual) states.residuals = allocation.like_weights(states.residual->dtype);
  if (states.projected()) {
    const ProjectionShape shape = projection_shape(target.weights.rows, target.weights.cols);
    const int64_t rank = projection_options(config.rule)->rank;
    states.second = allocation.whole(DType::kF32, shape.channels, rank);
    states.projection = allocation.whole(DType::kF32, rank, shape.depth);
  }
  return states;
}

}  // namespace

OptimizerStates::OptimizerStates(const OptimizerConfig& config, Format format,
                                 std::span<const UpdateTarget> targets,
                                 const std::vector<BlockRange>& blocks, Allocator& allocator)
    : targets_(targets), host_init_rms_(targets.size(), 1.0f) {
  for (size_t i = 0; i < targets.size(); ++i)
    states_.push_back(allocate_states(config, format, targets[i], blocks[i], allocator));
  if (bounds_weights(config.rule))
    init_rms_ = allocator.tensor(kOptimizerStateMemory, DType::kF32, 1, int64_t(targets.size()));
}

void OptimizerStates::set_init_rms(std::vector<float> values, Device& device) {
  host_init_rms_ = std::move(values);
  device.upload(reinterpret_cast<const std::byte*>(host_init_rms_.data()), init_rms_);
}

void OptimizerStates::read_init_rms(Device& device) {
  if (keeps_init_rms())
    device.download(init_rms_, reinterpret_cast<std::byte*>(host_init_rms_.data()));
}

std::vector<TensorPart> OptimizerStates::parts_of_targets() const {
  std::vector<TensorPart> parts;
  for (size_t i = 0; i < targets_.size(); ++i) {
    const TargetStates& states = states_[i];
    const EncodedTensor& w = targets_[i].weights;
    const ElementRange own = elements_of({w.rows, w.cols}, states.blocks, {w.cols});
    const auto add = [&](std::string_view name, const Tensor& tensor, int rank,
                         ElementRange elements) {
      parts.push_back({NamedTensor{fmt::format("{}/{}", name, targets_[i].name), tensor, rank},
                       elements.first, elements.count});
    };
    for (size_t s = 0; s < states.infos.size(); ++s)
      add(states.infos[s].name, states.moments[s], w.rank, own);
    if (states.residual) add(states.residual->name, states.residuals, w.rank, own);
    if (!states.projected()) continue;
    // A projected target is never split: a rank has all of it or nothing.
    const auto whole = [&](const Tensor& tensor) {
      return ElementRange{0, own.count > 0 ? tensor.elements() : 0};
    };
    add("v_r", states.second, 2, whole(states.second));
    add("projection", states.projection, 2, whole(states.projection));
  }
  return parts;
}

std::vector<TensorPart> OptimizerStates::all_parts() const {
  std::vector<TensorPart> parts = parts_of_targets();
  if (keeps_init_rms()) parts.push_back(whole_part({"init_rms", init_rms_, 1}));
  return parts;
}

}  // namespace mpt
