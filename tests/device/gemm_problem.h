// GEMMs of random operands on any device, against FP64.
#pragma once

#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "device/device.h"
#include "device/expect_rounded.h"
#include "support/device_matrix.h"
#include "support/draws.h"
#include "support/host_matrix.h"

namespace mpt::test {

struct GemmProblem {
  int64_t m, n, k;
  Transpose transpose_a = Transpose::kNo, transpose_b = Transpose::kNo;
  Accumulate accumulate = Accumulate::kNo;
  std::array<DType, 3> types{DType::kF32, DType::kF32, DType::kF32};  // A, B, D
  int64_t padding = 0;
  Multiply multiply = Multiply::kFull;
};

inline HostMatrix gemm_operand(DType dtype, int64_t rows, int64_t cols, const GemmProblem& p,
                               uint64_t seed) {
  HostMatrix x(dtype, {.rows = rows, .cols = cols, .padding = p.padding});
  Draws draws(seed);
  x.fill([&](int64_t, int64_t) { return draws.bell(0.5); });
  return x;
}

struct GemmOperands {
  HostMatrix a, b, d;

  explicit GemmOperands(const GemmProblem& p)
      : a(p.transpose_a == Transpose::kNo ? gemm_operand(p.types[0], p.m, p.k, p, 1)
                                          : gemm_operand(p.types[0], p.k, p.m, p, 1)),
        b(p.transpose_b == Transpose::kNo ? gemm_operand(p.types[1], p.k, p.n, p, 2)
                                          : gemm_operand(p.types[1], p.n, p.k, p, 2)),
        d(gemm_operand(p.types[2], p.m, p.n, p, 3)) {}
  // With these operands if a device works in host memory, or with their copies on it.
  [[nodiscard]] GemmCall call(const GemmProblem& p) const { return call_of(p, a, b, d); }
  static GemmCall call_of(const GemmProblem& p, const Tensor& a, const Tensor& b, const Tensor& d) {
    return {.a = a,
            .b = b,
            .d = d,
            .transpose_a = p.transpose_a,
            .transpose_b = p.transpose_b,
            .accumulate = p.accumulate,
            .multiply = p.multiply};
  }
};

// The exact result in FP64, and the sum of the sizes of its terms, from which the tolerance
// follows.
struct ExactSum {
  double value, size;
};

inline ExactSum exact_element(const GemmProblem& p, const GemmOperands& x, int64_t row,
                              int64_t col) {
  const double start = p.accumulate == Accumulate::kYes ? double(x.d.at(row, col)) : 0.0;
  ExactSum sum{start, std::fabs(start)};
  for (int64_t i = 0; i < p.k; ++i) {
    const double a = p.transpose_a == Transpose::kNo ? x.a.at(row, i) : x.a.at(i, row);
    const double b = p.transpose_b == Transpose::kNo ? x.b.at(i, col) : x.b.at(col, i);
    sum.value += a * b;
    sum.size += std::fabs(a * b);
  }
  return sum;
}

// k multiplications and as many additions in fp32, in any order; operands rounded to TF32 first if
// requested (two roundings to 11 significant bits).
inline double error_bound(const GemmProblem& p, const ExactSum& exact) {
  const double operands = p.multiply == Multiply::kTf32 ? 0x1p-10 : 0;
  return (double(p.k + 1) * 0x1p-24 + operands) * exact.size;
}

inline void expect_gemm(Device& device, Allocator& allocator, const GemmProblem& p) {
  SCOPED_TRACE(fmt::format("[{},{}] k {} transposes {}{} accumulate {} types {} {} {} padding {}",
                           p.m, p.n, p.k, int(p.transpose_a), int(p.transpose_b), int(p.accumulate),
                           name_of(p.types[0]), name_of(p.types[1]), name_of(p.types[2]),
                           p.padding));
  const GemmOperands before(p);
  const DeviceMatrix a(device, allocator, before.a), b(device, allocator, before.b),
      d(device, allocator, before.d);
  const GemmCall call = GemmOperands::call_of(p, a, b, d);
  device.gemm().reserve(allocator, std::array{call});
  device.gemm().run(call);
  ASSERT_EQ(before.a, a.fetched());
  ASSERT_EQ(before.b, b.fetched());
  const HostMatrix after = d.fetched();
  ASSERT_TRUE(after.padding_untouched());
  for (int64_t row = 0; row < p.m; ++row)
    for (int64_t col = 0; col < p.n; ++col) {
      const ExactSum exact = exact_element(p, before, row, col);
      ASSERT_TRUE(is_rounded(after.at(row, col), exact.value, error_bound(p, exact), p.types[2]))
          << row << "," << col;
    }
}

}  // namespace mpt::test
