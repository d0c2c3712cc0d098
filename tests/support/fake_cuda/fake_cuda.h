// What tests ask of the fake CUDA runtime (include/cuda_runtime.h).
//
// What it finds that a GPU would suffer silently, it reports as an error of the call: threads that wait for
// one another in vain, writes past the end of an allocation, a host pointer handed to a kernel, a wait within
// a capture.
#pragma once

#include <cstdint>
#include <string>

namespace fake_cuda {

struct Counters {
  int64_t allocations = 0;       // calls that allocated, on the device or pinned
  int64_t live_allocations = 0;  // now
  int64_t live_bytes = 0;        // of device memory, now
  int64_t peak_bytes = 0;        // of device memory, ever since reset_counters()
  int64_t synchronisations = 0;  // waits of the host: for the device, a stream, an event or a plain copy
  int64_t launches = 0;          // kernels that ran, within graphs too
  int64_t copies = 0;            // that ran, within graphs too
  int64_t gemms = 0;             // cublasLtMatmul that ran, within graphs too
  int64_t captures = 0;          // ended well
  int64_t graph_launches = 0;
};
[[nodiscard]] Counters counters();
// All but what is live to 0.
void reset_counters();

// In which order blocks and the threads of a block run. A result that depends on it has a race.
enum class Order : uint8_t { kForward, kBackward };
void set_order(Order order);

// When work on a stream runs: at the call; as late as possible, when the host waits for it; or late, and
// streams overtake each other wherever no event says otherwise. A result that depends on it lacks an event.
enum class Execution : uint8_t { kAtOnce, kLate, kOvertaking };
void set_execution(Execution execution);

// Whether kernels may be handed pointers to memory that a GPU does not see.
enum class HostPointers : uint8_t { kRefused, kAllowed };
void set_host_pointers(HostPointers host_pointers);

// The bytes that cudaMalloc() gives in all; 4 GiB unless set.
void set_device_bytes(int64_t bytes);

// What the latest failure was, in words; empty when there was none.
[[nodiscard]] std::string latest_fault();
// Forgets faults, captures and pending work.
void recover();

}  // namespace fake_cuda
