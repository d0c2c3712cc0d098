// Chooses the transport by launcher and by the device that holds the tensors.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/enum_names.h"
#include "device/device.h"
#include "ranks/launch_environment.h"
#include "ranks/transport.h"

namespace mpt {

// Transport for tensors.
enum class TransportKind : uint8_t { kAuto, kMpi, kNccl };
template <>
struct EnumNames<TransportKind> {
  static constexpr std::array<std::string_view, 3> kNames{"auto", "mpi", "nccl"};
};

struct TransportOptions {
  TransportKind kind = TransportKind::kAuto;  // auto: NCCL for a CUDA device, else MPI
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

// Transports of this build: "MPI, no NCCL".
std::string transports_built();

}  // namespace mpt
