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
  Backend backend = Backend::kCpu;
  CUstream_st* stream = nullptr;  // of the side queue, where the backend is CUDA
};

// One rank: the single transport, whatever the kind. For a CUDA device: called when the device is
// selected, with its side queue's stream, which outlives the transport. Throws Error, saying what would
// do, where the ranks cannot be brought together.
std::unique_ptr<Transport> make_transport(const LaunchEnvironment& environment,
                                          const TransportOptions& options);

// "MPI, no NCCL": what this program was built with.
std::string transports_built();

}  // namespace mpt
