#include "train/throughput.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/normal.h"

namespace mpt {

double measured_product_rate(Device& device) {
  constexpr int64_t kSize = 1024;
  constexpr int kRepeats = 4;
  const std::unique_ptr<Allocator> allocator = device.make_allocator();
  Tensor operand[3];
  std::vector<float> values(kSize * kSize);
  for (uint32_t i = 0; i < 3; ++i) {
    operand[i] = allocator->tensor(Purpose::kScratch, DType::kF32, kSize, kSize);
    fill_normals({.seed = 0, .tensor = i, .row = 0, .step = 0, .stream = Stream::kToy}, 1.0, kSize,
                 values.data());
    for (int64_t row = 1; row < kSize; ++row)
      std::rotate_copy(values.begin(), values.begin() + row, values.begin() + kSize,
                       values.begin() + row * kSize);
    device.upload(reinterpret_cast<const std::byte*>(values.data()), operand[i]);
  }
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    device.gemm().run({.a = operand[0], .b = operand[1], .d = operand[2], .transpose_b = Transpose::kYes});
    device.synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (repeat > 0) best = std::max(best, 2.0 * kSize * kSize * kSize / seconds);
  }
  return best;
}

double flops_per_token(const LlamaConfig& config, int64_t seq_len) {
  const int64_t c = config.hidden_size, layers = config.num_hidden_layers;
  const int64_t in_products = layers * (4 * c * c + 3 * c * config.intermediate_size) + config.vocab_size * c;
  return 6.0 * double(in_products) + 6.0 * double(layers) * double(c) * double(seq_len);
}

}  // namespace mpt
