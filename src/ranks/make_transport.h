// Chooses the transport by launcher and by the device that holds the tensors.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "device/device.h"
#include "ranks/launch_environment.h"
#include "ranks/rendezvous.h"
#include "ranks/transport.h"
#include "ranks/transport_kind.h"

namespace mpt {

struct TransportOptions {
  TransportKind kind = TransportKind::kAuto;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  StreamRef stream{};  // communication stream; must outlive the transport
};

// A single rank gets the single transport, whatever the kind. For a CUDA device, call after the
// device has been selected. Throws Error, suggesting what would work, if the ranks cannot be
// connected.
std::unique_ptr<Transport> make_transport(const LaunchEnvironment& environment,
                                          const TransportOptions& options);

// Makes the NCCL transport on the selected GPU (ranks/cuda/nccl_transport.h); null if not built in.
using NcclMaker = std::unique_ptr<Transport> (*)(const LaunchEnvironment& environment,
                                                 const TransportOptions& options,
                                                 std::unique_ptr<Transport> launched);
NcclMaker& nccl_maker();
struct RegisterNccl {
  explicit RegisterNccl(NcclMaker maker) { nccl_maker() = maker; }
};

// Where the ranks meet that no MPI connects. Throws Error if the launcher's variables do not say.
RendezvousOptions rendezvous_options(const LaunchEnvironment& environment,
                                     std::chrono::milliseconds timeout);

// Transports of this build: "MPI, Gloo", or "none".
std::string transports_built();

}  // namespace mpt
