// Ranks on GPUs, one each, whose tensors NCCL carries.
//
// Calls on tensors are enqueued on a stream, so they can be recorded in a CUDA graph; what a rank that is
// gone or hangs does to them shows only where the host waits: in calls on host memory, and in
// wait_for_device(). bytes_sent() counts what the calls enqueue; replays of a graph make no calls.
#pragma once

#include <memory>

#include "comm/launch_environment.h"
#include "comm/transport.h"
#include "core/tensor.h"

struct CUstream_st;

namespace mpt {

// On the GPU that is selected. NCCL's id comes from rank 0 through `launched`, the ranks as MPI launched
// them, which is kept; without it over TCP (rendezvous.h). `options.timeout` is longer than a step takes.
// Throws Error where a rank does not come.
std::unique_ptr<Transport> make_nccl_transport(const LaunchEnvironment& environment,
                                               const TransportOptions& options,
                                               std::unique_ptr<Transport> launched = nullptr);

// Sums that were made in bf16, as fp32, on a stream: fp32_to[i] = bf16_from[i], [1, n] each, which do not
// overlap.
void widen_sums(const Tensor& bf16_from, const Tensor& fp32_to, CUstream_st* stream);

}  // namespace mpt
