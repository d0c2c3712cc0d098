#include "ranks/make_transport.h"

#include <memory>
#include <string>

#include <fmt/format.h>

#include "ranks/mpi/mpi_transport.h"
#include "ranks/transport.h"

namespace mpt {

NcclMaker& nccl_maker() {
  static NcclMaker maker = nullptr;
  return maker;
}

namespace {

#ifdef MPT_WITH_MPI
constexpr bool kHasMpi = true;
#else
constexpr bool kHasMpi = false;
#endif

TransportKind chosen(const TransportOptions& options) {
  const bool cuda = options.stream.backend == Backend::kCuda;
  const TransportKind kind = options.kind != TransportKind::kAuto ? options.kind
                             : cuda                               ? TransportKind::kNccl
                                                                  : TransportKind::kMpi;
  if (kind == TransportKind::kNccl && !cuda)
    throw error(
        "NCCL transfers tensors on GPUs only; ranks on the CPU need MPI: start them with mpirun");
  if (kind == TransportKind::kMpi && cuda)
    throw error("MPI transfers tensors in host memory only; ranks on GPUs need NCCL");
  return kind;
}

std::unique_ptr<Transport> over_mpi(const LaunchEnvironment& environment,
                                    const TransportOptions& options) {
  if (environment.launcher != Launcher::kMpi)
    throw error("{} on the CPU: ranks on the CPU need MPI: start them with mpirun",
                description(environment));
#ifdef MPT_WITH_MPI
  return make_mpi_transport(
      {.rank = environment.rank, .size = environment.size, .timeout = options.timeout});
#else
  static_cast<void>(options);
  throw error(
      "{}: this program was built without MPI: install libopenmpi-dev and openmpi-bin, and build "
      "it again",
      description(environment));
#endif
}

std::unique_ptr<Transport> over_nccl(const LaunchEnvironment& environment,
                                     const TransportOptions& options) {
  const NcclMaker make_nccl_transport = nccl_maker();
  if (make_nccl_transport == nullptr)
    throw error(
        "{} on GPUs: this program was built without NCCL: install libnccl-dev, and build it again",
        description(environment));
  const bool through_mpi =
      environment.launcher == Launcher::kMpi && (kHasMpi || environment.master_address.empty());
  return make_nccl_transport(environment, options,
                             through_mpi ? over_mpi(environment, options) : nullptr);
}

}  // namespace

std::unique_ptr<Transport> make_transport(const LaunchEnvironment& environment,
                                          const TransportOptions& options) {
  if (environment.size == 1) return make_single_transport();
  return chosen(options) == TransportKind::kMpi ? over_mpi(environment, options)
                                                : over_nccl(environment, options);
}

std::string transports_built() {
  return fmt::format("{}MPI, {}NCCL", kHasMpi ? "" : "no ", nccl_maker() != nullptr ? "" : "no ");
}

}  // namespace mpt
