#include "model/weight_store.h"

#include <algorithm>

#include "core/bf16.h"
#include "core/normal.h"

namespace mpt {
namespace {

// Tensors for all parameters; those fused are cut from one allocation.
template <class DTypeOf>
std::vector<Tensor> allocate_all(const std::vector<ParamSpec>& specs, Purpose purpose, Allocator& allocator,
                                 const DTypeOf& dtype_of) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < specs.size();) {
    const ParamSpec& first = specs[i];
    const auto count = size_t(first.fused);
    int64_t rows = 0;
    for (size_t j = 0; j < count; ++j) rows += specs[i + j].physical_rows;
    const Tensor whole = allocator.tensor(purpose, dtype_of(first), rows, first.physical_cols);
    for (int64_t row = 0; tensors.size() < i + count; row += tensors.back().rows)
      tensors.push_back(whole.row_range(row, specs[tensors.size()].physical_rows));
    i += count;
  }
  return tensors;
}

}  // namespace

WeightStore::WeightStore(std::vector<ParamSpec> specs, const WeightOptions& options, Gradients gradients,
                         Allocator& allocator)
    : specs_(std::move(specs)), options_(options) {
  weights_ =
      allocate_all(specs_, Purpose::kWeights, allocator, [&](const ParamSpec&) { return options_.storage; });
  if (gradients == Gradients::kAllocate)
    gradients_ = allocate_all(specs_, Purpose::kGradients, allocator,
                              [&](const ParamSpec& spec) { return gradient_container(spec); });
}

DType WeightStore::gradient_container(const ParamSpec& spec) const {
  const int64_t additions =
      options_.additions * (spec.kind == ParamKind::kHead ? options_.head_additions : int64_t{1});
  return options_.gradient == DType::kBF16 && additions == 1 ? DType::kBF16 : DType::kF32;
}

bool WeightStore::rounded_later(int64_t i) const {
  return options_.gradient == DType::kBF16 && gradient(i).dtype == DType::kF32;
}

Tensor WeightStore::fused(const std::vector<Tensor>& tensors, int64_t i) const {
  Tensor all = tensors[size_t(i)];
  for (int64_t j = 1; j < specs_[size_t(i)].fused; ++j) all.rows += tensors[size_t(i + j)].rows;
  return all;
}

Tensor logical_view(const ParamSpec& spec, const Tensor& physical) {
  return {physical.data, physical.dtype, spec.rows, spec.cols, physical.stride};
}

std::vector<NamedTensor> WeightStore::named_tensors() const {
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < specs_.size(); ++i)
    named.push_back({specs_[i].name, logical_view(specs_[i], weights_[i]), specs_[i].rank()});
  return named;
}

namespace {

// FP32 values of rows [first, first + rows) of a parameter at step 0.
void draw_rows(const ParamSpec& spec, double std_dev, uint64_t seed, int64_t first, int64_t rows,
               float* out) {
  if (spec.kind == ParamKind::kNorm) {
    std::fill_n(out, rows * spec.cols, 1.0f);
    return;
  }
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    const RandomCounter counter{seed, spec.tensor_id, static_cast<uint32_t>(first + r), 0, Stream::kInit};
    fill_normals(counter, std_dev, spec.cols, out + r * spec.cols);
  }
}

void upload_as(DType storage, const std::vector<float>& values, std::vector<bf16>& narrow,
               const Tensor& target, Device& device) {
  if (storage == DType::kF32) return device.upload(reinterpret_cast<const std::byte*>(values.data()), target);
  for (int64_t i = 0; i < target.elements(); ++i) narrow[size_t(i)] = bf16_nearest(values[size_t(i)]);
  device.upload(reinterpret_cast<const std::byte*>(narrow.data()), target);
}

}  // namespace

void initialize_weights(const WeightStore& weights, double initializer_range, uint64_t seed, Device& device) {
  constexpr int64_t kStagedElements = int64_t{1} << 22;
  std::vector<float> values;
  std::vector<bf16> narrow;
  for (int64_t i = 0; i < int64_t(weights.specs().size()); ++i) {
    const ParamSpec& spec = weights.specs()[size_t(i)];
    const Tensor logical = logical_view(spec, weights.master(i));
    const int64_t block = std::clamp<int64_t>(kStagedElements / spec.cols, 1, spec.rows);
    values.resize(size_t(block * spec.cols));
    narrow.resize(values.size());
    for (int64_t row = 0; row < spec.rows; row += block) {
      const int64_t rows = std::min(block, spec.rows - row);
      draw_rows(spec, initializer_range, seed, row, rows, values.data());
      upload_as(weights.options().storage, values, narrow, logical.row_range(row, rows), device);
    }
  }
}

}  // namespace mpt
