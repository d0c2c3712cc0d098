// GEMMs of random FP8 codes with scales on any device, against FP64 dot products of the decoded
// operands.
#pragma once

#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "device/device.h"
#include "device/expect_rounded.h"
#include "support/device_matrix.h"
#include "support/draws.h"
#include "support/host_matrix.h"

namespace mpt::test {

// By the definition of the formats, not by the program's decoder.
inline double value_of_fp8(DType type, uint32_t code) {
  const bool e4m3 = type == DType::kE4M3;
  const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  const int exponent = int(code & 0x7F) >> mantissa_bits,
            mantissa = int(code) & ((1 << mantissa_bits) - 1);
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  if (e4m3 ? (code & 0x7F) == 0x7F : exponent == 31)
    return !e4m3 && mantissa == 0 ? sign * INFINITY : double(NAN);
  const double fraction = std::ldexp(double(mantissa), -mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias)
                               : std::ldexp(1 + fraction, exponent - bias));
}

// Random codes of values up to 512.
inline HostMatrix fp8_operand(DType type, int64_t rows, int64_t cols, uint64_t seed) {
  HostMatrix x(type, {.rows = rows, .cols = cols});
  Draws draws(seed);
  for (int64_t i = 0; i < rows * cols; ++i) {
    uint8_t code = 0;
    do code = uint8_t(draws.word());
    while (!(std::fabs(value_of_fp8(type, code)) <= 512));
    x.view().data[i] = std::byte{code};
  }
  return x;
}

struct Fp8Problem {
  const char* name;
  DType a, b, d;
  Transpose transpose_a = Transpose::kNo, transpose_b = Transpose::kNo;
  Accumulate accumulate = Accumulate::kNo;
  Multiply multiply = Multiply::kFull;
  int64_t k = 80;
};

inline double sum_of_sizes(std::span<const double> terms) {
  double size = 0;
  for (const double term : terms) size += std::fabs(term);
  return size;
}

// `sum_error`: error bound of the sum of the terms, which are products of the codes' values.
inline void expect_fp8_product(Device& device, const Fp8Problem& p,
                               double (*sum_error)(std::span<const double> terms)) {
  SCOPED_TRACE(p.name);
  const int64_t m = 48, n = 32, k = p.k;
  const bool ta = p.transpose_a == Transpose::kYes, tb = p.transpose_b == Transpose::kYes;
  const HostMatrix a = fp8_operand(p.a, ta ? k : m, ta ? m : k, 1);
  const HostMatrix b = fp8_operand(p.b, tb ? n : k, tb ? k : n, 2);
  HostMatrix before(p.d, {m, n}), inv_a(DType::kF32, {1, 1}), inv_b(DType::kF32, {1, 1});
  Draws draws(3);
  before.fill([&](int64_t, int64_t) { return draws.bell(20); });
  inv_a.set(0, 0, 1.0f / 149.333328f);
  inv_b.set(0, 0, 1.0f / 3000.7f);
  const auto allocator = device.make_allocator();
  const auto on_device = [&](const HostMatrix& x) { return DeviceMatrix(device, *allocator, x); };
  const DeviceMatrix a_there = on_device(a), b_there = on_device(b), d_there = on_device(before),
                     inv_a_there = on_device(inv_a), inv_b_there = on_device(inv_b);
  const GemmCall call{.a = a_there,
                      .b = b_there,
                      .d = d_there,
                      .transpose_a = p.transpose_a,
                      .transpose_b = p.transpose_b,
                      .accumulate = p.accumulate,
                      .multiply = p.multiply,
                      .scale_inv_a = Tensor(inv_a_there).as<float>(),
                      .scale_inv_b = Tensor(inv_b_there).as<float>()};
  device.gemm().reserve(*allocator, std::array{call});
  device.gemm().run(call);
  const HostMatrix d = d_there.fetched();
  for (int64_t r = 0; r < m; ++r)
    for (int64_t c = 0; c < n; ++c) {
      std::vector<double> terms;
      for (int64_t i = 0; i < k; ++i)
        terms.push_back(value_of_fp8(p.a, ta ? a.bits(i, r) : a.bits(r, i)) *
                        value_of_fp8(p.b, tb ? b.bits(c, i) : b.bits(i, c)));
      const double sum = std::accumulate(terms.begin(), terms.end(), 0.0);
      const double scale = double(inv_a.at(0, 0)) * double(inv_b.at(0, 0));
      const double start = p.accumulate == Accumulate::kYes ? double(before.at(r, c)) : 0.0;
      // Plus three operations in FP32: the product of the scales, its application and the addition.
      const double bound =
          scale * sum_error(terms) + 3 * 0x1p-24 * (scale * sum_of_sizes(terms) + std::fabs(start));
      ASSERT_TRUE(is_rounded(d.at(r, c), start + scale * sum, bound, p.d)) << r << "," << c;
    }
}

}  // namespace mpt::test
