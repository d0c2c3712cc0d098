#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"

namespace mpt {

Optimizer::Optimizer(const OptimizerConfig& config, DType state, std::vector<UpdateTarget> targets,
                     Device& device, Allocator& allocator)
    : config_(config),
      targets_(std::move(targets)),
      device_(device),
      ops_(make_update_ops(device)),
      state_names_(state_names(config)),
      host_init_rms_(targets_.size(), 1.0f) {
  int64_t pieces = 1;
  for (const UpdateTarget& target : targets_) {
    const Tensor& g = target.gradient;
    std::vector<Tensor> states;
    for (size_t i = 0; i < state_names_.size(); ++i) {
      Tensor s = allocator.tensor(Purpose::kOptimizerState, state, g.rows, g.stride);
      states.push_back(s.columns(0, g.cols));
    }
    states_.push_back(std::move(states));
    pieces = std::max(pieces, square_sums(g));
  }
  partial_ = allocator.tensor(Purpose::kScratch, DType::kF64, 1, pieces);
  host_partial_.resize(size_t(pieces));
  if (config_.clip_weight > 0 && config_.clip_weight_mode == ClipWeightMode::kInitRms)
    init_rms_ = allocator.tensor(Purpose::kOptimizerState, DType::kF32, 1, int64_t(targets_.size()));
  if (needs_exponent_table(config_))
    exponent_table_ = allocator.tensor(Purpose::kScratch, DType::kF32, 1, 2 * ExponentDecay::kEntries);
}

double Optimizer::sum_of_squares(const Tensor& tensor) {
  const Tensor partial = partial_.columns(0, square_sums(tensor));
  ops_->sum_of_squares(tensor, partial);
  device_.download(partial, reinterpret_cast<std::byte*>(host_partial_.data()));
  return std::accumulate(host_partial_.begin(), host_partial_.begin() + partial.cols, 0.0);
}

void Optimizer::weights_initialized() {
  if (init_rms_.rows == 0) return;
  for (size_t i = 0; i < targets_.size(); ++i) {
    const Tensor& w = targets_[i].weights.codes;
    host_init_rms_[i] = float(std::sqrt(sum_of_squares(w) / double(w.elements())));
  }
  device_.upload(reinterpret_cast<const std::byte*>(host_init_rms_.data()), init_rms_);
}

void Optimizer::states_loaded() {
  if (init_rms_.rows > 0) device_.download(init_rms_, reinterpret_cast<std::byte*>(host_init_rms_.data()));
}

double Optimizer::grad_norm() {
  double sum = 0;
  for (const UpdateTarget& target : targets_) sum += sum_of_squares(target.gradient);
  return std::sqrt(sum);
}

void Optimizer::step(const StepScalars& scalars) {
  check(scalars.t >= 1, "optimizer step {}; steps count from 1", scalars.t);
  if (exponent_table_.rows > 0)
    device_.upload(reinterpret_cast<const std::byte*>(exponent_decay_table(config_, scalars).data()),
                   exponent_table_);
  for (size_t i = 0; i < targets_.size(); ++i) {
    const UpdateTarget& target = targets_[i];
    const TensorScalars tensor{.rank = target.weights.rank, .weight_unit = host_init_rms_[i]};
    ops_->update({.rule = make_rule(config_, scalars, tensor, exponent_table_.as<float>()),
                  .weights = target.weights,
                  .states = states_[i],
                  .gradient = target.gradient,
                  .grad_scale = scalars.grad_scale});
  }
}

std::vector<NamedTensor> Optimizer::named_states() const {
  std::vector<NamedTensor> named;
  for (size_t s = 0; s < state_names_.size(); ++s)
    for (size_t i = 0; i < targets_.size(); ++i)
      named.push_back(
          {fmt::format("{}/{}", state_names_[s], targets_[i].name), states_[i][s], targets_[i].weights.rank});
  if (init_rms_.rows > 0) named.push_back({"init_rms", init_rms_, 1});
  return named;
}

float clip_scale(double clip_grad_norm, double norm) {
  // In this order std::min returns a NaN.
  return clip_grad_norm > 0 ? float(std::min(clip_grad_norm / (norm + 1e-6), 1.0)) : 1.0f;
}

}  // namespace mpt
