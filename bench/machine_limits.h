// Upper limits of the machine, measured by loops that do nothing else: the base of percentages.
#pragma once

#include <cstdint>
#include <memory>

namespace mpt {

struct MachineLimits {
  double fma_flops;  // FP32 operations per second in registers, two for each multiply-add
  double stream_bytes_per_second;  // between memory and processor, read and written bytes together
};

// Measures with `threads` OpenMP threads: the best of several passes, because other load on the
// machine can only slow a pass down. Takes about half a second, and meanwhile stream_array_bytes()
// of memory.
MachineLimits measured_machine_limits(int threads);

// Measure one limit each, in about `budget` seconds: on a machine whose speed varies, next to the
// work that the limit is to judge.
double measured_fma_flops(int threads, double budget);
class MemoryStream {
 public:
  explicit MemoryStream(int threads);
  double bytes_per_second(double budget);

 private:
  template <class F>
  void each(const F& f);

  int threads_;
  int64_t share_;  // vectors per thread
  std::unique_ptr<float[]> array_;
};

// Four times the last-level cache, between 256 MiB and 1 GiB: too much to stay in it.
long stream_array_bytes();

}  // namespace mpt
