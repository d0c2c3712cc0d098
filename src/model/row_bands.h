// Visits the rows of all masters in bands, with FP32 memory for the largest band: code that sets
// weights need not hold a whole tensor in FP32.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "model/parameters.h"
#include "model/weight_store.h"
#include "precision/codec_ops.h"

namespace mpt {

inline constexpr int64_t kStagedElements = int64_t{1} << 22;

// Rows of a tensor that has no tensor scale, as a tensor.
inline EncodedTensor rows_of(EncodedTensor tensor, int64_t first, int64_t rows) {
  tensor.rows = rows;
  tensor.codes = tensor.codes.row_range(first, rows);
  if (tensor.block_scales.rows > 0)
    tensor.block_scales = tensor.block_scales.row_range(first, rows);
  return tensor;
}

class RowBands {
 public:
  RowBands(const WeightStore& weights, Device& device)
      : weights_(weights), allocator_(device.make_allocator()) {
    for (const ParamSpec& spec : weights.specs())
      most_ = std::max(most_, rows_at_a_time(master(spec)) * spec.cols);
    ops_ = make_ops<CodecOps>(device.stream(), {*allocator_, most_rows(weights.specs())});
  }

  [[nodiscard]] const EncodedTensor& master(const ParamSpec& spec) const {
    return weights_.master(spec.tensor_id);
  }
  [[nodiscard]] CodecOps& ops() const { return *ops_; }
  [[nodiscard]] int64_t most_elements() const { return most_; }
  // FP32 memory for the largest band.
  [[nodiscard]] Tensor staging() const {
    return allocator_->tensor(kScratchMemory, DType::kF32, 1, most_);
  }

  // Calls work(first row, rows of the master, `staging` in their shape) for each band.
  template <class Work>
  void each(const ParamSpec& spec, const Tensor& staging, const Work& work) const {
    const int64_t band = rows_at_a_time(master(spec));
    for (int64_t row = 0; row < spec.rows; row += band) {
      const int64_t rows = std::min(band, spec.rows - row);
      work(row, rows_of(master(spec), row, rows),
           Tensor{staging.data, DType::kF32, rows, spec.cols, spec.cols});
    }
  }

 private:
  // Rows that can be encoded independently: all if the tensor has one scale.
  static int64_t rows_at_a_time(const EncodedTensor& tensor) {
    if (tensor.tensor_scale.rows > 0) return tensor.rows;
    return std::clamp<int64_t>(kStagedElements / tensor.cols, 1, tensor.rows);
  }

  const WeightStore& weights_;
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<CodecOps> ops_;
  int64_t most_ = 0;
};

}  // namespace mpt
