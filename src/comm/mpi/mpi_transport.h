// Ranks that are processes started by an MPI launcher, with tensors in host memory.
//
// A rank sends every other rank what is meant for it, and adds what it received in the order of ranks: the
// bits of threads' sums. Whatever is waited for is asked for again and again until a deadline, so a rank that
// hangs cannot hold the others for ever; what MPI's launcher notices by itself (a rank that was killed) ends
// all processes sooner.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "comm/transport.h"

namespace mpt {

struct MpiOptions {
  int64_t rank = 0, size = 1;  // as the environment says
  // For any of what a call waits for to arrive, since it began or since something else arrived.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  int64_t piece_bytes = int64_t{1} << 30;  // of one message: MPI counts in int
};

// Once in a process, by the thread that also lets the transport go. Its calls come from one thread at a
// time (MPI_THREAD_SERIALIZED). Letting it go ends MPI, for which it waits for the other ranks, except where
// an exception is on its way. Throws Error where MPI has other ranks than the environment says, or is too
// old.
std::unique_ptr<Transport> make_mpi_transport(const MpiOptions& options);

}  // namespace mpt
