// Encoded weights that own host memory, with guarded padding between the rows of every piece.
#pragma once

#include "precision/weight_formats.h"
#include "support/host_matrix.h"

namespace mpt::test {

class HostEncoded {
 public:
  struct Shape {
    int64_t rows, cols;
    int64_t padding = 0;  // bytes or elements after every row of codes and of scales
  };
  HostEncoded(const WeightEncoding& encoding, Shape shape)
      : HostEncoded(encoding, shape, logical_pieces(encoding, shape)) {}

  [[nodiscard]] EncodedTensor view() const {
    return {.encoding = encoding_,
            .rows = shape_.rows,
            .cols = shape_.cols,
            .rank = 2,
            .codes = codes,
            .block_scales = has_scales_ ? block_scales.view() : Tensor{},
            .tensor_scale = has_tensor_scale_ ? tensor_scale.view() : Tensor{}};
  }
  bool operator==(const HostEncoded& other) const {
    return codes == other.codes && block_scales == other.block_scales &&
           tensor_scale == other.tensor_scale;
  }
  [[nodiscard]] bool padding_untouched() const {
    return codes.padding_untouched() && block_scales.padding_untouched() &&
           tensor_scale.padding_untouched();
  }

 private:
  // Shapes and types as allocated by the program.
  static EncodedTensor logical_pieces(const WeightEncoding& encoding, Shape shape) {
    PlanningAllocator plan;
    return allocate_encoded(encoding, {shape.rows, shape.cols, shape.rows, shape.cols},
                            kWeightMemory, plan);
  }
  static HostMatrix like(const Tensor& t, int64_t padding) {
    return HostMatrix(t.dtype, {t.rows, t.cols, padding});
  }
  HostEncoded(const WeightEncoding& encoding, Shape shape, const EncodedTensor& pieces)
      : codes(like(pieces.codes, shape.padding)),
        block_scales(like(pieces.block_scales, shape.padding)),
        tensor_scale(like(pieces.tensor_scale, 0)),
        encoding_(encoding),
        shape_(shape),
        has_scales_(pieces.block_scales.rows > 0),
        has_tensor_scale_(pieces.tensor_scale.rows > 0) {}

 public:
  HostMatrix codes, block_scales, tensor_scale;

 private:
  WeightEncoding encoding_;
  Shape shape_;
  bool has_scales_, has_tensor_scale_;
};

}  // namespace mpt::test
