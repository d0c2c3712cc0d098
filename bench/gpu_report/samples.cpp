#include "samples.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/check.h"

namespace mpt {

double median_of(std::vector<double> values) {
  check(!values.empty(), "median of no samples");
  std::ranges::sort(values);
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

Json summary_of(const std::vector<double>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  return {{"median", median_of(values)}, {"min", least}, {"max", most}, {"samples", values}};
}

double seconds_of(Device& device, const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  device.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<double> seconds_per_run(Device& device, const Effort& effort,
                                    const std::function<void()>& work) {
  seconds_of(device, work);  // one-time work, such as loading of kernels
  int64_t runs = 1;
  const auto block = [&] {
    return seconds_of(device, [&] {
      for (int64_t i = 0; i < runs; ++i) work();
    });
  };
  double elapsed = block();
  while (elapsed < effort.seconds_per_block && runs < 100'000) {
    const double wanted = double(runs) * effort.seconds_per_block / std::max(elapsed, 1e-9);
    runs = std::clamp(int64_t(std::ceil(1.1 * wanted)), runs + 1, 10 * runs);
    elapsed = block();
  }
  std::vector<double> seconds;
  for (int64_t i = 0; i < effort.blocks; ++i) seconds.push_back(block() / double(runs));
  return seconds;
}

}  // namespace mpt
