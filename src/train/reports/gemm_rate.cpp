#include "train/reports/gemm_rate.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "core/bf16.h"
#include "core/normal.h"
#include "core/progress.h"
#include "core/random.h"

namespace mpt {
namespace {

// A random first row; row r is the first row rotated by r.
std::vector<std::byte> random_matrix(DType dtype, int64_t size, uint32_t which) {
  std::vector<float> row(static_cast<size_t>(size));
  fill_normals({.seed = 0, .tensor = which, .row = 0, .step = 0, .stream = kSyntheticStream}, 1.0,
               size, row.data());
  const auto width = static_cast<size_t>(size_of(dtype));
  std::vector<std::byte> stored(row.size() * width), all(stored.size() * row.size());
  for (size_t i = 0; i < row.size(); ++i) {
    const bf16 narrow = bf16_nearest(row[i]);
    memcpy(&stored[i * width], dtype == DType::kBF16 ? static_cast<const void*>(&narrow) : &row[i],
           width);
  }
  for (size_t r = 0; r < row.size(); ++r)
    std::rotate_copy(stored.begin(), stored.begin() + int64_t(r * width), stored.end(),
                     all.begin() + int64_t(r * stored.size()));
  return all;
}

}  // namespace

double measured_gemm_rate(Device& device) {
  constexpr int kRepeats = 4;
  const bool gpu = device.backend() == Backend::kCuda;
  const DType dtype = gpu ? DType::kBF16 : DType::kF32;
  const int64_t size = gpu ? 8192 : 1024;
  const std::unique_ptr<Allocator> allocator = device.make_allocator();
  Tensor operand[3];
  for (uint32_t i = 0; i < 3; ++i) {
    operand[i] = allocator->tensor(kScratchMemory, dtype, size, size);
    device.upload(random_matrix(dtype, size, i).data(), operand[i]);
  }
  const GemmCall call{
      .a = operand[0], .b = operand[1], .d = operand[2], .transpose_b = Transpose::kYes};
  device.gemm().reserve(*allocator, std::array{call});
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    device.gemm().run(call);
    device.synchronize();
    const double seconds = seconds_since(start);
    if (repeat > 0)
      best = std::max(best, 2.0 * double(size) * double(size) * double(size) / seconds);
  }
  return best;
}

double flops_per_token(const LlamaConfig& config, int64_t seq_len) {
  const int64_t layers = config.num_hidden_layers;
  const int64_t in_gemms =
      layers * linear_elements_of_layer(config) + config.vocab_size * config.hidden_size;
  return 6.0 * double(in_gemms) +
         6.0 * double(layers) * double(config.query_width()) * double(seq_len);
}

}  // namespace mpt
