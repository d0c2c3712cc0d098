// NCCL transport: one GPU per rank.
//
// Calls on tensors are enqueued on a stream, so a CUDA graph can capture them. A lost or hanging
// rank is detected only when the host waits: in calls on host memory and in wait_for_device().
// bytes_sent() counts calls when they are enqueued; graph replays make no calls.
#pragma once

#include <memory>

#include "core/tensor.h"
#include "ranks/launch_environment.h"
#include "ranks/make_transport.h"
#include "ranks/transport.h"

struct CUstream_st;

namespace mpt {

// Uses the selected GPU. NCCL's id is broadcast from rank 0 through `launched`, the launcher's MPI
// transport, which is kept, or over TCP if that is null (rendezvous.h). `options.timeout` must
// exceed the duration of a step. Throws Error if a rank does not arrive.
std::unique_ptr<Transport> make_nccl_transport(const LaunchEnvironment& environment,
                                               const TransportOptions& options,
                                               std::unique_ptr<Transport> launched = nullptr);

// Widens bf16 sums to fp32 on a stream: fp32_to[i] = bf16_from[i], both [1, n], not overlapping.
void widen_sums(const Tensor& bf16_from, const Tensor& fp32_to, CUstream_st* stream);

}  // namespace mpt
