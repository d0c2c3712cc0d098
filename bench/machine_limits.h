// What the machine can do at most, measured by loops that do nothing else: what rates are
// percentages of.
#pragma once

#include <cstdint>
#include <memory>

namespace mpt {

struct MachineLimits {
  double fma_flops;  // FP32 operations per second in registers, two for each multiply-add
  double stream_bytes_per_second;  // between memory and processor, read and written bytes together
};

// Of that many OpenMP threads at once: the best of several passes, because others on the machine
// can only slow a pass down. Takes about half a second, and while it measures the memory that
// stream_array_bytes() says.
MachineLimits measured_machine_limits(int threads);

// One of them, in about `budget` seconds: where the machine is not always the same, beside what it
// is to judge.
double measured_fma_flops(int threads, double budget);
class MemoryStream {
 public:
  explicit MemoryStream(int threads);
  double bytes_per_second(double budget);

 private:
  template <class F>
  void each(const F& f);

  int threads_;
  int64_t share_;  // vectors of a thread
  std::unique_ptr<float[]> array_;
};

// Four times the last cache, between 256 MiB and 1 GiB: so much does not stay in it.
long stream_array_bytes();

}  // namespace mpt
