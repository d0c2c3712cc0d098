// The transport that fits how a process was started and where its tensors lie.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "comm/launch_environment.h"
#include "comm/transport.h"
#include "core/enum_names.h"
#include "device/device.h"

namespace mpt {

// What carries tensors between ranks.
enum class TransportKind : uint8_t { kAuto, kMpi, kNccl };
template <>
struct EnumNames<TransportKind> {
  static constexpr std::array<std::string_view, 3> kNames{"auto", "mpi", "nccl"};
};

struct TransportOptions {
  TransportKind kind = TransportKind::kAuto;  // auto: NCCL for a CUDA device, else MPI
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  StreamRef stream{};  // of the communication stream, which outlives the transport
};

// One rank: the single transport, whatever the kind. For a CUDA device: called when the device is
// selected. Throws Error, saying what would do, where the ranks cannot be brought together.
std::unique_ptr<Transport> make_transport(const LaunchEnvironment& environment,
                                          const TransportOptions& options);

// NCCL's transport on the GPU that is selected, where this program has it (comm/cuda/nccl_transport.h), else
// null.
using NcclMaker = std::unique_ptr<Transport> (*)(const LaunchEnvironment& environment,
                                                 const TransportOptions& options,
                                                 std::unique_ptr<Transport> launched);
NcclMaker& nccl_maker();
struct RegisterNccl {
  explicit RegisterNccl(NcclMaker maker) { nccl_maker() = maker; }
};

// "MPI, no NCCL": what this program was built with.
std::string transports_built();

}  // namespace mpt
