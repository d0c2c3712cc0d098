// MPI transport: ranks started by an MPI launcher, tensors in host memory.
//
// Each rank sends the others their parts and adds what it receives in rank order, which makes sums
// reproducible to the bit. Pending messages are polled until a deadline, so a hanging rank cannot
// block the others forever; failures that the launcher detects (a killed rank) end all processes
// sooner.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "ranks/transport.h"

namespace mpt {

struct MpiOptions {
  int64_t rank = 0, size = 1;  // according to the environment
  // Maximum time without any message arriving, since the call began or since the last arrival.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  int64_t piece_bytes = int64_t{1} << 30;  // largest message: MPI counts in int
};

// Call once per process, on the thread that will also destroy the transport. Calls must come from
// one thread at a time (MPI_THREAD_SERIALIZED). The destructor finalizes MPI, waiting for the other
// ranks, unless an exception is in flight. Throws Error if MPI's ranks differ from the
// environment's, or if MPI is too old.
std::unique_ptr<Transport> make_mpi_transport(const MpiOptions& options);

}  // namespace mpt
