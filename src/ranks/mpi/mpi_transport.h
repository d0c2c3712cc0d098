// MPI transport: ranks started by an MPI launcher, tensors in host memory. Failures that the
// launcher detects (a killed rank) end all processes.
#pragma once

#include <memory>

#include "ranks/exchange_transport.h"

namespace mpt {

// Call once per process, on the thread that will also destroy the transport. Calls must come from
// one thread at a time (MPI_THREAD_SERIALIZED). The destructor finalizes MPI, waiting for the other
// ranks, unless an exception is in flight. Throws Error if MPI's ranks differ from the options', or
// if MPI is too old.
std::unique_ptr<Transport> make_mpi_transport(const ExchangeOptions& options);

}  // namespace mpt
