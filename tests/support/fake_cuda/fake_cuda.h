// Test controls of the fake CUDA runtime (include/cuda_runtime.h).
//
// Misuse that a GPU would not report becomes an error of the call: threads that deadlock, writes
// past the end of an allocation, a missing barrier between two threads' accesses, a host pointer
// passed to a kernel, a wait within a capture.
#pragma once

#include <cstdint>
#include <string>

namespace fake_cuda {

struct Counters {
  int64_t allocations = 0;       // calls that allocated, on the device or pinned
  int64_t live_allocations = 0;  // now
  int64_t live_bytes = 0;        // device memory
  int64_t peak_bytes = 0;        // device memory since reset_counters()
  int64_t synchronisations = 0;  // host waits: for the device, a stream, an event or a plain copy
  int64_t launches = 0;          // kernels run, including those in graphs
  int64_t copies = 0;            // copies run, including those in graphs
  int64_t gemms = 0;             // cublasLtMatmul calls run, including those in graphs
  int64_t captures = 0;          // completed
  int64_t graph_launches = 0;
};
[[nodiscard]] Counters counters();
// Resets all counters except the live ones.
void reset_counters();

// Order of blocks, and of threads within a block. A result that depends on it has a race.
enum class Order : uint8_t { kForward, kBackward };
void set_order(Order order);

// When work on a stream runs: at the call; as late as possible, when the host waits for it; or
// late, with streams overtaking each other unless events forbid it. A result that depends on this
// lacks an event.
//
// Three things are late in any case, because a GPU promises no more: work on the legacy default
// stream, including copies by plain cudaMemcpy(); the part of a copy from pageable memory that is
// pending when its call returns; and an event after either. They run when something that they
// precede does: later work of the stream, of blocking streams other than the legacy one, work that
// waits for such an event, or the host. A kernel on another stream finds the memory unchanged.
enum class Execution : uint8_t { kAtOnce, kLate, kOvertaking };
void set_execution(Execution execution);

// Whether unsynchronized accesses of two threads to the same memory, at least one of them a write,
// are a fault of the kernel (race_detector.h lists what is detected and what is not).
enum class Races : uint8_t { kReported, kIgnored };
void set_races(Races races);

// Whether kernels may receive pointers to host memory that a GPU cannot access.
enum class HostPointers : uint8_t { kRefused, kAllowed };
void set_host_pointers(HostPointers host_pointers);

// Total bytes cudaMalloc() can allocate; 4 GiB by default.
void set_device_bytes(int64_t bytes);

// Largest pitch of a copy of rows; just below 2 GiB by default, as on every GPU so far.
void set_most_pitch(int64_t bytes);

// Description of the latest failure; empty if there was none.
[[nodiscard]] std::string latest_fault();
// Clears faults, captures and pending work.
void recover();

}  // namespace fake_cuda
