// Host matrices of doubles in and out of the LLaMA operations on the CPU, in any storage type.
#pragma once

#include <memory>
#include <vector>

#include "core/normal.h"
#include "core/random.h"
#include "device/backends.h"
#include "model/llama_ops.h"
#include "model/model_bench.h"

namespace mpt::test {

struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<double> values{};

  Matrix(int64_t r, int64_t c) : rows(r), cols(c), values(size_t(r * c)) {}
  double& at(int64_t r, int64_t c) { return values[size_t(r * cols + c)]; }
  [[nodiscard]] double at(int64_t r, int64_t c) const { return values[size_t(r * cols + c)]; }
  [[nodiscard]] std::vector<double> row(int64_t r) const {
    return {values.begin() + r * cols, values.begin() + (r + 1) * cols};
  }
};

// Half a unit in the last place of the type, relative to the value.
inline double rounding_of(DType type) {
  return type == DType::kBF16 ? kBf16Rounding : kFp32Rounding;
}

inline double rounded(double x, DType type) {
  return type == DType::kBF16 ? double(to_float(bf16_nearest(float(x)))) : double(float(x));
}

// Normal numbers, each exact in `type`; a function only of the arguments.
inline Matrix random_matrix(int64_t rows, int64_t cols, DType type, uint64_t seed) {
  Matrix m(rows, cols);
  std::vector<float> row(size_t(std::max<int64_t>(cols, 1)));
  for (int64_t r = 0; r < rows; ++r) {
    fill_normals({seed, 0, uint32_t(r), 0, kSyntheticStream}, 1.0, cols, row.data());
    for (int64_t c = 0; c < cols; ++c) m.at(r, c) = rounded(double(row[size_t(c)]), type);
  }
  return m;
}

class OpBench {
 public:
  OpBench()
      : device_(make_cpu_device(1)),
        allocator_(device_->make_allocator()),
        ops_(make_ops<LlamaOps>(device_->stream())) {}

  Tensor empty(DType type, int64_t rows, int64_t cols) {
    return allocator_->tensor(kScratchMemory, type, rows, cols);
  }
  Tensor put(DType type, const Matrix& m) {
    const Tensor tensor = empty(type, m.rows, m.cols);
    set_values(*device_, tensor, {m.values.begin(), m.values.end()});
    return tensor;
  }
  Tensor put(const std::vector<int32_t>& values) {
    const Tensor tensor = empty(DType::kI32, 1, int64_t(values.size()));
    device_->upload(reinterpret_cast<const std::byte*>(values.data()), tensor);
    return tensor;
  }
  Matrix get(const Tensor& tensor) {
    Matrix m(tensor.rows, tensor.cols);
    std::ranges::copy(values_of(*device_, tensor), m.values.begin());
    return m;
  }

  LlamaOps& ops() { return *ops_; }
  Device& device() { return *device_; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<LlamaOps> ops_;
};

// Holds if |got - want| <= `roundings` of the storage type, relative to the value, plus `terms`
// FP32 roundings of its largest intermediate value.
struct Bound {
  DType storage;
  double roundings;
  double terms;
};

inline void expect_near(double got, double want, double largest, const Bound& b,
                        const std::string& where) {
  const double storage = b.roundings * rounding_of(b.storage) * (1 + 2 * rounding_of(b.storage));
  const double most = storage * std::abs(want) + b.terms * kFp32Rounding * std::abs(largest);
  EXPECT_LE(std::abs(got - want), most) << where << ": " << got << " for " << want;
}

}  // namespace mpt::test
