#include "model/formulas/rope_table.h"

#include <cmath>
#include <numbers>
#include <vector>

namespace mpt {
namespace {

double for_longer_context(double frequency, const RopeScaling& scaling) {
  if (scaling.rope_type == RopeType::kDefault) return frequency;
  const double divided = frequency / scaling.factor;
  if (scaling.rope_type == RopeType::kLinear) return divided;
  const double turns =
      double(scaling.original_max_position_embeddings) * frequency / (2 * std::numbers::pi);
  if (turns > scaling.high_freq_factor) return frequency;
  if (turns < scaling.low_freq_factor) return divided;
  const double share =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - share) * divided + share * frequency;
}

}  // namespace

double rotary_frequency(const LlamaConfig& config, int64_t i) {
  const double plain = std::pow(config.rope_theta, -2.0 * double(i) / double(config.head_dim()));
  return for_longer_context(plain, config.rope_scaling);
}

RopeTable::RopeTable(const LlamaConfig& config, int64_t positions, Device& device,
                     Allocator& allocator) {
  const int64_t half = config.head_dim() / 2;
  cosine = allocator.tensor(kScratchMemory, DType::kF32, positions, half);
  sine = allocator.tensor(kScratchMemory, DType::kF32, positions, half);
  if (cosine.data == nullptr) return;
  std::vector<float> cosines(size_t(positions * half)), sines(cosines.size());
  for (int64_t t = 0; t < positions; ++t)
    for (int64_t i = 0; i < half; ++i) {
      const double angle = double(t) * rotary_frequency(config, i);
      cosines[size_t(t * half + i)] = float(std::cos(angle));
      sines[size_t(t * half + i)] = float(std::sin(angle));
    }
  device.upload(reinterpret_cast<const std::byte*>(cosines.data()), cosine);
  device.upload(reinterpret_cast<const std::byte*>(sines.data()), sine);
}

}  // namespace mpt
