#include "model/weight_store.h"

#include <algorithm>
#include <span>

#include "core/normal.h"
#include "core/random.h"
#include "model/parameters.h"
#include "model/row_bands.h"
#include "precision/weight_formats.h"

namespace mpt {
namespace {

// Physical tensors of a group of fused parameters, cut from one allocation.
std::vector<Tensor> allocate_together(std::span<const ParamSpec> group, MemoryPurpose purpose,
                                      DType dtype, Allocator& allocator) {
  int64_t rows = 0;
  for (const ParamSpec& spec : group) rows += spec.physical_rows;
  const Tensor whole = allocator.tensor(purpose, dtype, rows, group.front().physical_cols);
  std::vector<Tensor> parts;
  int64_t row = 0;
  for (const ParamSpec& spec : group) {
    parts.push_back(whole.row_range(row, spec.physical_rows));
    row += spec.physical_rows;
  }
  return parts;
}

void append(std::vector<Tensor>& all, const std::vector<Tensor>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

WeightEncoding WeightOptions::encoding_of(ParamKind kind) const {
  const WeightEncoding of_linears =
      linears.value_or(WeightEncoding{.format = plain_format(storage)});
  return kind == ParamKind::kLinear ? of_linears
                                    : WeightEncoding{.format = unscaled_format(of_linears.format)};
}

WeightStore::WeightStore(std::vector<ParamSpec> specs, const WeightOptions& options, Device& device,
                         Allocator& allocator)
    : specs_(std::move(specs)), options_(options) {
  check(options.storage == DType::kF32 || options.storage == DType::kBF16,
        "weights cannot be read as {}; expected fp32 or bf16", name_of(options.storage));
  for (size_t i = 0; i < specs_.size(); i += size_t(specs_[i].fused)) allocate_group(i, allocator);
  if (options.gradients == Gradients::kAllocate) allocate_gradients(allocator);
  const auto has_copy = [&](const ParamSpec& spec) {
    return is_copied(spec.kind) && compute(spec.tensor_id).rows > 0;
  };
  if (std::ranges::any_of(specs_, has_copy))
    ops_ = make_ops<CodecOps>(device.stream(), {allocator, most_rows(specs_)});
}

bool WeightStore::is_copied(ParamKind kind) const {
  return options_.encoding_of(kind).format != plain_format(options_.storage);
}

void WeightStore::allocate_group(size_t first, Allocator& allocator) {
  const auto group = std::span(specs_).subspan(first, size_t(specs_[first].fused));
  const ParamKind kind = group.front().kind;
  const bool copied = is_copied(kind);
  if (copied) {
    for (const ParamSpec& spec : group)
      masters_.push_back(allocate_encoded(options_.encoding_of(kind),
                                          {.rows = spec.rows,
                                           .cols = spec.cols,
                                           .physical_rows = spec.physical_rows,
                                           .physical_cols = spec.physical_cols,
                                           .rank = spec.rank()},
                                          kWeightMemory, allocator));
    if (kind == ParamKind::kLinear && options_.linear_copies == LinearCopies::kNone)
      return compute_.resize(compute_.size() + group.size());
  }
  append(compute_, allocate_together(group, copied ? kComputeWeightMemory : kWeightMemory,
                                     options_.storage, allocator));
  if (copied) return;
  for (const ParamSpec& spec : group)
    masters_.push_back(encoded_view(logical_view(spec, compute_[masters_.size()]), spec.rank()));
}

void WeightStore::allocate_gradients(Allocator& allocator) {
  for (size_t i = 0; i < specs_.size(); i += size_t(specs_[i].fused))
    append(gradients_,
           allocate_together(std::span(specs_).subspan(i, size_t(specs_[i].fused)), kGradientMemory,
                             gradient_container(specs_[i]), allocator));
}

// FP32 GEMMs write only FP32 (cuBLASLt has no others).
DType WeightStore::gradient_container(const ParamSpec& spec) const {
  const int64_t as_head = spec.kind == ParamKind::kHead || spec.tied ? options_.head_additions : 0,
                otherwise = spec.kind == ParamKind::kHead ? 0 : 1;
  const int64_t additions = options_.additions * (as_head + otherwise);
  const bool in_bf16 = options_.gradient == DType::kBF16 && options_.storage == DType::kBF16;
  return in_bf16 && additions == 1 ? DType::kBF16 : DType::kF32;
}

bool WeightStore::rounded_later(int64_t i) const {
  return options_.gradient == DType::kBF16 && gradient(i).dtype == DType::kF32;
}

Tensor WeightStore::fused(const std::vector<Tensor>& tensors, int64_t i) const {
  Tensor all = tensors[size_t(i)];
  check(all.rows > 0, "{} has no copy that GEMMs can read", specs_[size_t(i)].name);
  for (int64_t j = 1; j < specs_[size_t(i)].fused; ++j) all.rows += tensors[size_t(i + j)].rows;
  return all;
}

void WeightStore::decode_weights() const { decode_weights(0, int64_t(specs_.size())); }

void WeightStore::decode_weights(int64_t first, int64_t count) const {
  for (auto i = size_t(first); i < size_t(first + count); ++i)
    if (is_copied(specs_[i].kind) && compute_[i].rows > 0)
      ops_->decode(masters_[i], logical_view(specs_[i], compute_[i]));
}

Tensor logical_view(const ParamSpec& spec, const Tensor& physical) {
  return {physical.data, physical.dtype, spec.rows, spec.cols, physical.stride};
}

std::vector<NamedTensor> WeightStore::named_tensors() const {
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < specs_.size(); ++i)
    for (NamedTensor& piece : masters_[i].pieces(specs_[i].name)) named.push_back(std::move(piece));
  return named;
}

std::vector<TensorPart> WeightStore::named_parts(const Partition& partition, int64_t rank) const {
  check(partition.tensors() == int64_t(specs_.size()), "partition of {} tensors for a model of {}",
        partition.tensors(), specs_.size());
  std::vector<TensorPart> named;
  for (size_t i = 0; i < specs_.size(); ++i)
    for (TensorPart& part :
         parts_of(masters_[i], specs_[i].name, partition.range(rank, int64_t(i))))
      named.push_back(std::move(part));
  return named;
}

std::vector<NamedTensor> WeightStore::decoded_tensors() const {
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < specs_.size(); ++i) {
    check(compute_[i].rows > 0, "{} has no decoded copy", specs_[i].name);
    named.push_back({specs_[i].name, logical_view(specs_[i], compute_[i]), specs_[i].rank()});
  }
  return named;
}

// --- initial values ------------------------------------------------------------------------------

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
    const RandomCounter counter{seed, spec.tensor_id, static_cast<uint32_t>(first + r), 0,
                                kInitStream};
    fill_normals(counter, std_dev, spec.cols, out + r * spec.cols);
  }
}

}  // namespace

void initialize_weights(const WeightStore& weights, double initializer_range, uint64_t seed,
                        Device& device) {
  const RowBands bands(weights, device);
  const Tensor staging = bands.staging();
  std::vector<float> values(static_cast<size_t>(bands.most_elements()));
  for (const ParamSpec& spec : weights.specs())
    bands.each(spec, staging, [&](int64_t row, const EncodedTensor& target, const Tensor& drawn) {
      draw_rows(spec, initializer_range, seed, row, drawn.rows, values.data());
      device.upload(reinterpret_cast<const std::byte*>(values.data()), drawn);
      bands.ops().encode(drawn, target);
    });
  device.synchronize();
  weights.decode_weights();
}

}  // namespace mpt
