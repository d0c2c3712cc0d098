#include "precision/encoded_tensor.h"

namespace mpt {
namespace {

int64_t ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }

// Tensors for `rows` x `cols` elements, of types and widths that the format asks for.
template <class Make>
void make_pieces(EncodedTensor& t, int64_t rows, int64_t cols, const Make& make) {
  switch (t.encoding.format) {
    case WeightFormat::kF32:
      t.codes = make(DType::kF32, rows, cols);
      return;
    case WeightFormat::kBF16:
      t.codes = make(DType::kBF16, rows, cols);
      return;
    case WeightFormat::kBlockFp8:
      t.codes = make(DType::kE4M3, rows, cols);
      t.block_scales = make(DType::kF16, rows, ceil_div(cols, t.encoding.fp8_block_size));
      return;
    case WeightFormat::kNvfp4:
      t.codes = make(DType::kU8, rows, ceil_div(cols, kNvfp4Block) * kNvfp4Block / 2);
      t.block_scales = make(DType::kE4M3, rows, ceil_div(cols, kNvfp4Block));
      t.tensor_scale = make(DType::kF32, 1, 1);
      return;
  }
}

}  // namespace

WeightEncoding linear_encoding(const PrecisionConfig& config) {
  return {.format = config.weights,
          .fp8_block_size = config.fp8_block_size,
          .fp8_scale_mode = config.fp8_scale_mode,
          .nvfp4_scale_mode = config.nvfp4_scale_mode};
}

EncodedTensor encoded_view(const Tensor& logical, int rank) {
  check(logical.dtype == DType::kF32 || logical.dtype == DType::kBF16, "{} weights", name_of(logical.dtype));
  const auto format = logical.dtype == DType::kF32 ? WeightFormat::kF32 : WeightFormat::kBF16;
  return {.encoding = {.format = format},
          .rows = logical.rows,
          .cols = logical.cols,
          .rank = rank,
          .codes = logical,
          .block_scales = {},
          .tensor_scale = {}};
}

EncodedTensor allocate_encoded(const WeightEncoding& encoding, const EncodedShape& shape, Purpose purpose,
                               Allocator& allocator) {
  EncodedTensor t{.encoding = encoding,
                  .rows = shape.rows,
                  .cols = shape.cols,
                  .rank = shape.rank,
                  .codes = {},
                  .block_scales = {},
                  .tensor_scale = {}};
  make_pieces(t, shape.physical_rows, shape.physical_cols, [&](DType dtype, int64_t rows, int64_t cols) {
    return allocator.tensor(purpose, dtype, rows, cols);
  });
  // The logical part of each piece, which has the widths of a tensor without padding.
  EncodedTensor logical = t;
  const Tensor* whole[] = {&t.codes, &t.block_scales, &t.tensor_scale};
  size_t piece = 0;
  make_pieces(logical, shape.rows, shape.cols, [&](DType, int64_t rows, int64_t cols) {
    return whole[piece++]->row_range(0, rows).columns(0, cols);
  });
  return logical;
}

std::vector<NamedTensor> EncodedTensor::pieces(const std::string& name) const {
  std::vector<NamedTensor> named{{name, codes, rank}};
  if (block_scales.rows > 0) named.push_back({name + "_block_scales", block_scales, 2});
  if (tensor_scale.rows > 0) named.push_back({name + "_tensor_scale", tensor_scale, 1});
  return named;
}

int64_t EncodedTensor::logical_bytes() const {
  int64_t bytes = 0;
  for (const Tensor* piece : {&codes, &block_scales, &tensor_scale})
    bytes += piece->elements() * size_of(piece->dtype);
  return bytes;
}

}  // namespace mpt
