// Shared by the tests of scaled formats: the published input, rows stored and loaded by one lane,
// Gaussian weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "device/backends.h"
#include "precision/codec_ops.h"
#include "precision/weight_formats.h"
#include "support/draws.h"
#include "support/host_encoded.h"

namespace mpt::test {

// The two blocks of 16 whose encodings are published in docs/numerics.md "FP8 block weights" and
// "NVFP4 weights".
inline std::vector<float> two_blocks() {
  std::vector<float> x(32);
  for (int i = 0; i < 16; ++i) {
    x[size_t(i)] = float(i - 8) / 4;
    x[size_t(16 + i)] = (i % 2 == 0 ? 0.001f : -0.001f) * float(i);
  }
  return x;
}

// Stores row 0, of at most an update block, by one lane.
template <class Codec>
void store_row(const Codec& codec, const std::vector<float>& x, const DitherSource& source = {}) {
  float values[kUpdateBlock] = {};
  std::copy(x.begin(), x.end(), values);
  const BlockSpan span{0, 0, int64_t(x.size())};
  codec.store(SerialGroup{}, span, values, source.draw(SerialGroup{}, span));
}
template <class Codec>
std::vector<float> load_row(const Codec& codec, int64_t count) {
  float values[kUpdateBlock];
  codec.load(SerialGroup{}, {0, 0, count}, values);
  return {values, values + count};
}

struct Ops {
  std::unique_ptr<Device> device = make_cpu_device(1);
  std::unique_ptr<Allocator> allocator = device->make_allocator();
  std::unique_ptr<CodecOps> ops;
  explicit Ops(int64_t most_rows)
      : ops(make_ops<CodecOps>(device->stream(), {*allocator, most_rows})) {}
  CodecOps* operator->() const { return ops.get(); }
};

inline HostMatrix gaussian(int64_t rows, int64_t cols) {
  HostMatrix x(DType::kF32, {rows, cols});
  const Tensor view = x;
  Draws draws(77);
  for (int64_t i = 0; i < rows * cols; i += 2) {
    const double radius = std::sqrt(-2 * std::log(draws.uniform(0, 1) + 0x1p-33));
    const double angle = draws.uniform(0, 2 * M_PI);
    view.as<float>()[i] = float(radius * std::cos(angle));
    view.as<float>()[i + 1] = float(radius * std::sin(angle));
  }
  return x;
}

// Root mean square of the encoding error of a million normal values, relative to theirs.
inline double gaussian_error(const WeightEncoding& encoding) {
  constexpr int64_t kRows = 1024, kCols = 1024;
  static const HostMatrix source = gaussian(kRows, kCols);
  HostEncoded weights(encoding, {kRows, kCols});
  HostMatrix decoded(DType::kF32, {kRows, kCols});
  const Ops ops(kRows);
  ops->encode(source, weights.view());
  ops->decode(weights.view(), decoded);
  double error = 0, total = 0;
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    const double x = source.view().as<float>()[i], y = decoded.view().as<float>()[i];
    error += (y - x) * (y - x);
    total += x * x;
  }
  return std::sqrt(error / total);
}

}  // namespace mpt::test
