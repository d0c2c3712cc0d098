#include "update_rate.h"

#include <cmath>

#include <fmt/format.h>

#include "benchmarked_rule.h"
#include "device_probe.h"
#include "model/weight_store.h"
#include "train/step/training_model.h"

namespace mpt {
namespace {

constexpr int64_t kMatrices = 16;

// Square or nearly square matrices, of typical model widths.
std::vector<ParamSpec> matrices_of(int64_t elements) {
  const int64_t each = (elements + kMatrices - 1) / kMatrices;
  const int64_t cols = std::min<int64_t>(4096, align_up(int64_t(std::sqrt(double(each))), 256));
  const int64_t rows = (each + cols - 1) / cols;
  std::vector<ParamSpec> specs;
  for (int64_t i = 0; i < kMatrices; ++i)
    specs.push_back({.name = fmt::format("matrix.{}", i),
                     .kind = ParamKind::kLinear,
                     .rows = rows,
                     .cols = cols,
                     .physical_rows = rows,
                     .physical_cols = cols,
                     .tensor_id = uint32_t(i)});
  return specs;
}

OptimizerConfig optimizer_config(const UpdateCase& update) {
  return {.rule = benchmarked_rule(update.rule, {.additive = 1e-4, .multiplicative = 1e-4}),
          .weight_rounding = update.weight_rounding};
}

// Read and written once each, except that the gradient is only read.
struct UpdateBytes {
  int64_t weights = 0, states = 0, gradients = 0;

  [[nodiscard]] int64_t moved() const { return 2 * (weights + states) + gradients; }
};

UpdateBytes bytes_of_update(const WeightStore& weights, const Optimizer& optimizer) {
  UpdateBytes bytes{.states = optimizer.optimizer_state_bytes()};
  for (int64_t i = 0; i < int64_t(weights.specs().size()); ++i) {
    bytes.weights += weights.master(i).logical_bytes();
    bytes.gradients += weights.gradient(i).elements() * size_of(weights.gradient(i).dtype);
  }
  return bytes;
}

}  // namespace

Json measure_update(Device& device, const UpdateCase& update, const Effort& effort,
                    double copy_bytes_per_second) {
  const Format others = update.format == WeightFormat::kF32 ? Format::kF32 : Format::kBF16;
  const std::unique_ptr<Allocator> allocator = device.make_allocator();
  const WeightStore weights(matrices_of(update.elements),
                            {.storage = dtype_of(others),
                             .gradient = dtype_of(others),
                             .linears = WeightEncoding{.format = update.format},
                             .linear_copies = LinearCopies::kNone},
                            device, *allocator);
  Optimizer optimizer(optimizer_config(update),
                      {.state = others, .state_rounding = update.state_rounding, .seed = 1},
                      update_targets(weights), device, *allocator);
  initialize_weights(weights, 0.02, 1, device);
  optimizer.weights_initialized();
  for (int64_t i = 0; i < kMatrices; ++i)
    fill_with_normals(weights.gradient(i), uint32_t(i), device);
  const double norm = optimizer.grad_norm();
  optimizer.prepare({.t = 1});
  const std::vector<double> seconds = seconds_per_run(device, effort, [&] { optimizer.update(); });
  const std::vector<double> of_norm =
      seconds_per_run(device, effort, [&] { optimizer.measure_gradients({}); });
  const UpdateBytes bytes = bytes_of_update(weights, optimizer);
  std::vector<double> rates;
  for (const double s : seconds) rates.push_back(double(bytes.moved()) / s);
  return {{"format", name_of(update.format)},
          {"rule", update.rule},
          {"writeback", name_of(update.weight_rounding)},
          {"state_rounding", name_of(update.state_rounding)},
          {"elements", total_elements(weights.specs())},
          {"weight_bytes", bytes.weights},
          {"state_bytes", bytes.states},
          {"gradient_bytes", bytes.gradients},
          {"bytes_moved", bytes.moved()},
          {"bytes_formula", "2 x (weights and their scales + states) + gradients"},
          {"seconds", summary_of(seconds)},
          {"bytes_per_second", summary_of(rates)},
          {"copy_bytes_per_second", copy_bytes_per_second},
          {"percent_of_copy", 100 * median_of(rates) / copy_bytes_per_second},
          {"norm_bytes_per_second", double(bytes.gradients) / median_of(of_norm)},
          {"grad_norm", norm},
          {"updated", optimizer.control().proceed != 0}};
}

}  // namespace mpt
