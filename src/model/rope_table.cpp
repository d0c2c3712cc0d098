#include "model/rope_table.h"

#include <cmath>
#include <vector>

namespace mpt {

RopeTable::RopeTable(const LlamaConfig& config, int64_t positions, Device& device,
                     Allocator& allocator) {
  const int64_t half = config.head_dim() / 2;
  cosine = allocator.tensor(kScratchMemory, DType::kF32, positions, half);
  sine = allocator.tensor(kScratchMemory, DType::kF32, positions, half);
  if (cosine.data == nullptr) return;
  std::vector<float> cosines(size_t(positions * half)), sines(cosines.size());
  for (int64_t t = 0; t < positions; ++t)
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          double(t) * std::pow(config.rope_theta, -2.0 * double(i) / double(config.head_dim()));
      cosines[size_t(t * half + i)] = float(std::cos(angle));
      sines[size_t(t * half + i)] = float(std::sin(angle));
    }
  device.upload(reinterpret_cast<const std::byte*>(cosines.data()), cosine);
  device.upload(reinterpret_cast<const std::byte*>(sines.data()), sine);
}

}  // namespace mpt
