// NCCL transport: one GPU per rank.
//
// Calls on tensors are enqueued on a stream, so a CUDA graph can record them. A lost or hanging
// rank is noticed only when the host waits: in calls on host memory and in wait_for_device().
// bytes_sent() counts the calls when they are enqueued; replays of a graph make no calls.
#pragma once

#include <memory>

#include "comm/launch_environment.h"
#include "comm/transport.h"
#include "core/tensor.h"

struct CUstream_st;

namespace mpt {

// Uses the selected GPU. NCCL's id is broadcast from rank 0 through `launched`, the MPI transport
// of the launcher, which is kept; if null, over TCP (rendezvous.h). `options.timeout` must exceed
// the duration of a step. Throws Error if a rank does not arrive.
std::unique_ptr<Transport> make_nccl_transport(const LaunchEnvironment& environment,
                                               const TransportOptions& options,
                                               std::unique_ptr<Transport> launched = nullptr);

// Widens bf16 sums to fp32 on a stream: fp32_to[i] = bf16_from[i], both [1, n], not overlapping.
void widen_sums(const Tensor& bf16_from, const Tensor& fp32_to, CUstream_st* stream);

}  // namespace mpt
