// The libraries that transfer tensors between ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/enum_names.h"

namespace mpt {

// auto: NCCL between GPUs; on CPUs MPI if mpirun started the ranks, else Gloo.
enum class TransportKind : uint8_t { kAuto, kMpi, kGloo, kNccl };
template <>
struct EnumNames<TransportKind> {
  static constexpr std::array<std::string_view, 4> kNames{"auto", "mpi", "gloo", "nccl"};
};

}  // namespace mpt
