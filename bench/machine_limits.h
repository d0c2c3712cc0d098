// What the machine can do at most, measured by loops that do nothing else: what rates are percentages of.
#pragma once

namespace mpt {

struct MachineLimits {
  double fma_flops;                // FP32 operations per second in registers, two for each multiply-add
  double stream_bytes_per_second;  // between memory and processor, read and written bytes together
};

// Of that many OpenMP threads at once: the best of several passes, because others on the machine can only
// slow a pass down. Takes about half a second, and while it measures the memory that stream_array_bytes()
// says.
MachineLimits measured_machine_limits(int threads);

// Four times the last cache, between 256 MiB and 1 GiB: so much does not stay in it.
long stream_array_bytes();

}  // namespace mpt
