// A matrix that owns host memory, initially zero, with optional padding between rows. Values are
// read and written as fp32 or bf16, bits as any type.
//
// Padding is filled with a pattern, so writes outside the logical elements are detected.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "core/bf16.h"
#include "core/tensor.h"

namespace mpt::test {

class HostMatrix {
 public:
  static constexpr std::byte kGuard{0xA5};

  struct Shape {
    int64_t rows, cols;
    int64_t padding = 0;  // elements between the end of a row and the next
  };
  HostMatrix(DType dtype, Shape shape)
      : view_{nullptr, dtype, shape.rows, shape.cols, shape.cols + shape.padding},
        bytes_(size_t(view_.rows * view_.stride * size_of(dtype)), kGuard) {
    for (int64_t r = 0; r < view_.rows; ++r)
      std::fill_n(bytes_.begin() + r * view_.stride * size_of(dtype), view_.cols * size_of(dtype),
                  std::byte{});
  }

  [[nodiscard]] Tensor view() const {
    Tensor tensor = view_;
    tensor.data = const_cast<std::byte*>(bytes_.data());
    return tensor;
  }
  operator Tensor() const { return view(); }  // NOLINT: a matrix stands wherever a view does

  void set(int64_t row, int64_t col, float x) {
    check(view_.dtype == DType::kF32 || view_.dtype == DType::kBF16, "a value as {}",
          name_of(view_.dtype));
    if (view_.dtype == DType::kF32)
      write(row, col, x);
    else
      write(row, col, bf16_nearest(x));
  }
  [[nodiscard]] float at(int64_t row, int64_t col) const {
    return view_.dtype == DType::kF32 ? read<float>(row, col) : to_float(read<bf16>(row, col));
  }
  // The stored bits: 32, 16 or 8.
  [[nodiscard]] uint32_t bits(int64_t row, int64_t col) const {
    switch (size_of(view_.dtype)) {
      case 1:
        return read<uint8_t>(row, col);
      case 2:
        return read<uint16_t>(row, col);
      default:
        return read<uint32_t>(row, col);
    }
  }
  void fill(const std::function<float(int64_t, int64_t)>& value) {
    for (int64_t r = 0; r < view_.rows; ++r)
      for (int64_t c = 0; c < view_.cols; ++c) set(r, c, value(r, c));
  }
  // All elements, logical and padding.
  bool operator==(const HostMatrix& other) const { return bytes_ == other.bytes_; }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  [[nodiscard]] bool padding_untouched() const {
    for (int64_t r = 0; r < view_.rows; ++r)
      for (int64_t b = (r * view_.stride + view_.cols) * size_of(view_.dtype);
           b < (r + 1) * view_.stride * size_of(view_.dtype); ++b)
        if (bytes_[size_t(b)] != kGuard) return false;
    return true;
  }

 private:
  [[nodiscard]] size_t offset(int64_t row, int64_t col) const {
    check(row >= 0 && row < view_.rows && col >= 0 && col < view_.cols,
          "element ({},{}) of [{},{}]", row, col, view_.rows, view_.cols);
    return size_t((row * view_.stride + col) * size_of(view_.dtype));
  }
  template <class T>
  void write(int64_t row, int64_t col, T x) {
    memcpy(bytes_.data() + offset(row, col), &x, sizeof x);
  }
  template <class T>
  [[nodiscard]] T read(int64_t row, int64_t col) const {
    T x;
    memcpy(&x, bytes_.data() + offset(row, col), sizeof x);
    return x;
  }

  Tensor view_;
  std::vector<std::byte> bytes_;
};

}  // namespace mpt::test
