#include "model/weight_ema.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "model/parameters.h"

namespace mpt {
namespace {

Tensor allocate_mean(const ParamSpec& spec, BlockRange own, Allocator& allocator) {
  const Tensor shape{nullptr, DType::kF32, spec.rows, spec.cols, spec.cols};
  if (own.empty()) return shape;
  const int64_t span = span_of(shape, {spec.rows, spec.cols}, own).cols;
  return whole_of_span(allocator.tensor(kWeightEmaMemory, DType::kF32, 1, span), shape, own);
}

// Share of the weights after step t: 1 / (1 + d + ... + d^(t-1)).
double newest_share(double decay, int64_t step) {
  return (1 - decay) / (1 - std::pow(decay, double(step)));
}

}  // namespace

std::string ema_name(const std::string& parameter) { return "ema/" + parameter; }

WeightEma::WeightEma(const WeightStore& weights, double decay, const Place& place)
    : weights_(weights),
      decay_(decay),
      ops_(make_ops<CodecOps>(place.device.stream(),
                              {place.allocator, most_rows(weights.specs())})) {
  for (size_t i = 0; i < weights.specs().size(); ++i) {
    const BlockRange own = place.partition.range(place.rank, int64_t(i));
    means_.push_back({own, allocate_mean(weights.specs()[i], own, place.allocator)});
  }
}

void WeightEma::follow(int64_t step) {
  const auto share = static_cast<float>(newest_share(decay_, step));
  for (size_t i = 0; i < means_.size(); ++i)
    ops_->follow(weights_.master(int64_t(i)), means_[i].own, means_[i].values, share);
}

std::vector<TensorPart> WeightEma::parts() const {
  std::vector<TensorPart> parts;
  for (size_t i = 0; i < means_.size(); ++i) {
    const ParamSpec& spec = weights_.specs()[i];
    const ElementRange own = elements_of({spec.rows, spec.cols}, means_[i].own, {spec.cols});
    parts.push_back(
        {NamedTensor{ema_name(spec.name), means_[i].values, weights_.master(int64_t(i)).rank},
         own.first, own.count});
  }
  return parts;
}

}  // namespace mpt
