#include "optim/scale_pass.h"

#include <algorithm>

#include "ranks/communicator.h"

namespace mpt {
namespace {

bool follows_block_scales(const OptimizerConfig& config, const UpdateTarget& target) {
  const AdditiveConfig* const additive = additive_of(config.rule);
  return additive != nullptr && additive->nvfp4_additive_scale == Nvfp4AdditiveScale::kBlock &&
         has_relative_scales(target.weights.encoding.format);
}

}  // namespace

ScalePass::ScalePass(const OptimizerConfig& config, std::span<const UpdateTarget> targets,
                     const OptimizerStates& states, Device& device, Allocator& allocator)
    : targets_(targets) {
  int64_t live_blocks = 0, scaled_rows = 0, relative_rows = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    const EncodedTensor& w = targets[i].weights;
    if (needs_maximum(w.encoding)) {
      live_.push_back(i);
      live_blocks = std::max(live_blocks, states[i].blocks.count);
    }
    if (!states[i].blocks.empty() && follows_block_scales(config, targets[i])) {
      relative_.push_back(i);
      relative_rows = std::max(relative_rows, w.rows);
    }
    if (is_scaled(w.encoding.format)) scaled_rows = std::max(scaled_rows, w.rows);
  }
  const auto row = [&](DType dtype, int64_t count) {
    return allocator.tensor(kScratchMemory, dtype, 1, count);
  };
  if (live_blocks > 0) maxima_of_blocks_ = row(DType::kF32, live_blocks);
  if (!live_.empty()) next_maxima_ = row(DType::kF32, int64_t(live_.size()));
  if (!relative_.empty()) {
    mean_scales_ = row(DType::kF32, int64_t(relative_.size()));
    scale_sums_ = row(DType::kF64, relative_rows);
  }
  if (scaled_rows > 0) codec_ = make_ops<CodecOps>(device.stream(), {allocator, scaled_rows});
}

void ScalePass::find_means(OptimizerOps& ops) {
  for (size_t i = 0; i < relative_.size(); ++i)
    ops.find_mean_scale(targets_[relative_[i]].weights, scale_sums_,
                        mean_scales_.columns(int64_t(i), 1));
}

void ScalePass::clear_maxima(OptimizerOps& ops) {
  if (!live_.empty()) ops.clear_maxima(next_maxima_);
}

void ScalePass::find_maxima(const UpdateBatch& batch, const BatchCall& call) const {
  if (!live_.empty()) batch.find_maxima(call);
}

void ScalePass::reduce_maxima(Communicator& ranks) {
  if (!live_.empty()) ranks.all_reduce_max(next_maxima_);
}

void ScalePass::take_maxima(OptimizerOps& ops, const StepControl* control) {
  for (size_t i = 0; i < live_.size(); ++i)
    ops.take_maximum(targets_[live_[i]].weights, next_maxima_.columns(int64_t(i), 1), control);
}

void ScalePass::rescale(size_t target) {
  if (codec_) codec_->rescale(targets_[target].weights);
}

void ScalePass::complete(size_t target, TensorSlot& slot) const {
  if (const auto live = std::ranges::find(live_, target); live != live_.end())
    slot.next_maximum = next_maxima_.columns(live - live_.begin(), 1);
  if (const auto relative = std::ranges::find(relative_, target); relative != relative_.end())
    slot.mean_scale = mean_scales_.columns(relative - relative_.begin(), 1);
}

}  // namespace mpt
