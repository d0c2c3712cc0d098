// A tensor view: address, element type and shape. It owns nothing and is independent of the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/enum_names.h"

namespace mpt {

// Storage element types, named as in configs and messages.
enum class DType : uint8_t { kF32, kBF16, kI32, kF64, kF16, kE4M3, kE5M2, kU8, kE8M0, kI16, kI8 };
template <>
struct EnumNames<DType> {
  static constexpr std::array<std::string_view, 11> kNames{
      "fp32", "bf16", "int32", "fp64", "fp16", "e4m3", "e5m2", "uint8", "e8m0", "int16", "int8"};
};

constexpr int64_t size_of(DType type) {
  constexpr std::array<int64_t, 11> kSizes{4, 2, 4, 8, 2, 1, 1, 1, 1, 2, 1};
  return kSizes[static_cast<size_t>(type)];
}

// Target token of a position without a prediction.
inline constexpr int32_t kIgnoreTarget = -1;

// Row-major matrix view [rows, cols]; `stride` is the distance between rows in elements. A vector
// is one row. data is null in a planned (not allocated) tensor.
struct Tensor {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  [[nodiscard]] int64_t elements() const { return rows * cols; }
  [[nodiscard]] bool contiguous() const { return stride == cols || rows == 1; }
  [[nodiscard]] int64_t bytes() const { return ((rows - 1) * stride + cols) * size_of(dtype); }

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
  // Columns [first, first + count) of every row.
  [[nodiscard]] Tensor columns(int64_t first, int64_t count) const {
    check(first >= 0 && first + count <= cols,
          "columns [{}, +{}) are outside a tensor of {} columns", first, count, cols);
    return {data ? data + first * size_of(dtype) : nullptr, dtype, rows, count, stride};
  }
  // Rows [first, first + count).
  [[nodiscard]] Tensor row_range(int64_t first, int64_t count) const {
    check(first >= 0 && first + count <= rows, "rows [{}, +{}) are outside a tensor of {} rows",
          first, count, rows);
    return {data ? data + first * stride * size_of(dtype) : nullptr, dtype, count, cols, stride};
  }
};

// Named tensors, which models and optimizers hand to checkpoints.

struct NamedTensor {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight", "m/model.norm.weight"
  Tensor tensor;     // logical elements (padding excluded by its stride)
  int rank = 2;      // 1: saved with shape [cols], 2: with shape [rows, cols]

  [[nodiscard]] std::vector<int64_t> shape() const {
    return rank == 1 ? std::vector{tensor.cols} : std::vector{tensor.rows, tensor.cols};
  }
};

// A range of consecutive elements of a tensor in packed order: the part that one rank holds, or all
// of it.
struct TensorPart {
  NamedTensor whole;  // only the elements of the part need to be in memory
  int64_t first = 0;  // element
  int64_t count = 0;  // elements

  [[nodiscard]] bool is_whole() const { return first == 0 && count == whole.tensor.elements(); }
};
inline TensorPart whole_part(NamedTensor tensor) {
  const int64_t elements = tensor.tensor.elements();
  return {std::move(tensor), 0, elements};
}

}  // namespace mpt
