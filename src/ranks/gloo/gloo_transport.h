// Gloo transport: ranks on CPUs that any launcher started (torchrun, srun, `mpretrain launch`),
// connected by TCP, tensors in host memory. What PyTorch's ranks on CPUs use.
//
// Every pair of ranks has a connection, so a rank that ends is noticed at once by those that wait
// for it, with the cause if the rank could still tell it.
#pragma once

#include <memory>

#include "ranks/exchange_transport.h"
#include "ranks/rendezvous.h"

namespace mpt {

// Connects this rank to all others, whose addresses it learns at `rendezvous`. Binds to the
// interface that the environment variable GLOO_SOCKET_IFNAME names, else to own_address(). The
// destructor waits for the other ranks, unless an exception is in flight. Throws Error naming the
// rank that could not be reached.
std::unique_ptr<Transport> make_gloo_transport(const ExchangeOptions& options,
                                               Rendezvous& rendezvous);

}  // namespace mpt
