// Reproducible random numbers for property tests, identical on every standard library.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/random.h"

namespace mpt::test {

class Draws {
 public:
  explicit Draws(uint64_t seed) : counter_{seed, 0xFFFF, 0, 0, kSyntheticStream} {}

  uint32_t word() { return counter_.word(next_++); }
  // Uniform in [low, high).
  double uniform(double low, double high) {
    return low + (high - low) * (double(word()) * 0x1p-32);
  }
  int64_t index(int64_t count) { return int64_t(uint64_t{word()} * uint64_t(count) >> 32); }
  bool coin() { return (word() & 1u) != 0; }
  // Either sign; magnitudes spread evenly over the binades 2^low .. 2^high.
  float signed_binades(double low, double high) {
    const double magnitude = std::exp2(uniform(low, high));
    return float(coin() ? magnitude : -magnitude);
  }
  // Roughly normal with mean 0 and the given standard deviation.
  float bell(double spread) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += uniform(-1, 1);
    return float(sum * spread);
  }

 private:
  RandomCounter counter_;
  uint32_t next_ = 0;
};

}  // namespace mpt::test
