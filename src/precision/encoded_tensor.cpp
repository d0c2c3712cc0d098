#include "precision/encoded_tensor.h"

#include "precision/weight_formats.h"

namespace mpt {
namespace {

// Sets each piece of t that the format has to make(piece, type, rows, columns), for a tensor of
// `rows` x `cols` elements.
template <class Make>
void make_pieces(EncodedTensor& t, int64_t rows, int64_t cols, const Make& make) {
  const EncodedLayout layout = layout_of(t.encoding);
  t.codes = make(&EncodedTensor::codes, layout.codes, rows, layout.code_cols(cols));
  if (layout.block_scales)
    t.block_scales = make(&EncodedTensor::block_scales, layout.block_scales->dtype, rows,
                          layout.scale_cols(cols));
  if (layout.tensor_scale)
    t.tensor_scale = make(&EncodedTensor::tensor_scale, DType::kF32, int64_t{1}, int64_t{1});
}

}  // namespace

void check_format(const EncodedTensor& t, std::string_view expected) {
  check(name_of(t.encoding.format) == expected, "{} codec for {} weights", expected,
        name_of(t.encoding.format));
}

EncodedTensor encoded_view(const Tensor& logical, int rank) {
  return {.encoding = {.format = plain_format(logical.dtype)},
          .rows = logical.rows,
          .cols = logical.cols,
          .rank = rank,
          .codes = logical,
          .block_scales = {},
          .tensor_scale = {}};
}

EncodedTensor allocate_encoded(const WeightEncoding& encoding, const EncodedShape& shape,
                               MemoryPurpose purpose, Allocator& allocator) {
  EncodedTensor t{.encoding = encoding,
                  .rows = shape.rows,
                  .cols = shape.cols,
                  .rank = shape.rank,
                  .codes = {},
                  .block_scales = {},
                  .tensor_scale = {}};
  make_pieces(t, shape.physical_rows, shape.physical_cols,
              [&](auto, DType dtype, int64_t rows, int64_t cols) {
                return allocator.tensor(purpose, dtype, rows, cols);
              });
  // Logical part of each piece: its size without padding.
  EncodedTensor logical = t;
  make_pieces(logical, shape.rows, shape.cols, [&](auto piece, DType, int64_t rows, int64_t cols) {
    return (t.*piece).row_range(0, rows).columns(0, cols);
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

std::vector<Tensor> spans_of(const EncodedTensor& tensor, BlockRange range) {
  const BlockGrid grid{tensor.rows, tensor.cols};
  const EncodedLayout layout = layout_of(tensor.encoding);
  std::vector<Tensor> spans{span_of(tensor.codes, grid, range, layout.code_cols(kUpdateBlock))};
  if (layout.block_scales)
    spans.push_back(span_of(tensor.block_scales, grid, range, layout.scale_cols(kUpdateBlock)));
  return spans;
}

std::vector<TensorPart> parts_of(const EncodedTensor& tensor, const std::string& name,
                                 BlockRange range) {
  std::vector<TensorPart> parts;
  if (range.empty()) return parts;
  const BlockGrid grid{tensor.rows, tensor.cols};
  const auto add = [&](NamedTensor piece, int64_t block_cols) {
    const ElementRange elements = elements_of(grid, range, {piece.tensor.cols, block_cols});
    parts.push_back({std::move(piece), elements.first, elements.count});
  };
  const EncodedLayout layout = layout_of(tensor.encoding);
  std::vector<NamedTensor> pieces = tensor.pieces(name);
  add(std::move(pieces.front()), layout.code_cols(kUpdateBlock));
  if (layout.block_scales) add(std::move(pieces[1]), layout.scale_cols(kUpdateBlock));
  if (layout.tensor_scale && range.first == 0)
    parts.push_back(whole_part(std::move(pieces.back())));
  return parts;
}

}  // namespace mpt
