// Non-owning, device-independent tensor view: address, element type and shape.
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
// is a single row. data is null in a planned (unallocated) tensor.
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

}  // namespace mpt
