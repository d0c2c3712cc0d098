#include "ranks/make_transport.h"

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ranks/gloo/gloo_transport.h"
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
#ifdef MPT_WITH_GLOO
constexpr bool kHasGloo = true;
#else
constexpr bool kHasGloo = false;
#endif

// MPI where its launcher started the ranks, since nothing else is sure to reach all of them.
TransportKind for_host_memory(const LaunchEnvironment& environment) {
  const bool by_mpi = environment.launcher == Launcher::kMpi;
  return by_mpi && (kHasMpi || !kHasGloo) ? TransportKind::kMpi : TransportKind::kGloo;
}

TransportKind chosen(const LaunchEnvironment& environment, const TransportOptions& options) {
  const bool cuda = options.stream.backend == Backend::kCuda;
  if (options.kind == TransportKind::kAuto)
    return cuda ? TransportKind::kNccl : for_host_memory(environment);
  if (options.kind == TransportKind::kNccl && !cuda)
    throw error(
        "distributed.transport is nccl, which transfers tensors on GPUs only; ranks on the CPU "
        "take "
        "auto, gloo or mpi");
  if (options.kind != TransportKind::kNccl && cuda)
    throw error(
        "distributed.transport is {}, which transfers tensors in host memory only; ranks on GPUs "
        "take auto or nccl",
        name_of(options.kind));
  return options.kind;
}

ExchangeOptions exchange_options(const LaunchEnvironment& environment,
                                 const TransportOptions& options) {
  return {.rank = environment.rank, .size = environment.size, .timeout = options.timeout};
}

std::unique_ptr<Transport> over_mpi(const LaunchEnvironment& environment,
                                    const TransportOptions& options) {
  if (environment.launcher != Launcher::kMpi)
    throw error("{}: distributed.transport is mpi, which needs ranks that mpirun started",
                description(environment));
#ifdef MPT_WITH_MPI
  return make_mpi_transport(exchange_options(environment, options));
#else
  static_cast<void>(options);
  throw error(
      "{}: this program was built without MPI: install libopenmpi-dev and openmpi-bin, and build "
      "it again",
      description(environment));
#endif
}

std::unique_ptr<Transport> over_gloo(const LaunchEnvironment& environment,
                                     const TransportOptions& options) {
#ifdef MPT_WITH_GLOO
  Rendezvous rendezvous(rendezvous_options(environment, options.timeout));
  return make_gloo_transport(exchange_options(environment, options), rendezvous);
#else
  static_cast<void>(options);
  throw error(
      "{} on the CPU: this program was built without Gloo: install libgloo-dev, and build it "
      "again{}",
      description(environment), kHasMpi ? ", or start the ranks with mpirun" : "");
#endif
}

std::unique_ptr<Transport> over_nccl(const LaunchEnvironment& environment,
                                     const TransportOptions& options) {
  const NcclMaker make_nccl_transport = nccl_maker();
  if (make_nccl_transport == nullptr)
    throw error(
        "{} on GPUs: this program was built without NCCL: install libnccl-dev, and build it again",
        description(environment));
  const bool through_mpi = environment.launcher == Launcher::kMpi && kHasMpi;
  return make_nccl_transport(environment, options,
                             through_mpi ? over_mpi(environment, options) : nullptr);
}

}  // namespace

RendezvousOptions rendezvous_options(const LaunchEnvironment& environment,
                                     std::chrono::milliseconds timeout) {
  if (environment.size > 1 && environment.master_address.empty())
    throw error(
        "{}: nothing says where the ranks meet: set MASTER_ADDR to the machine of rank 0 and "
        "MPT_MASTER_PORT to a free port there",
        description(environment));
  return {.rank = environment.rank,
          .size = environment.size,
          .address = environment.master_address,
          .port = environment.master_port,
          .run_id = environment.run_id,
          .timeout = timeout};
}

std::unique_ptr<Transport> make_transport(const LaunchEnvironment& environment,
                                          const TransportOptions& options) {
  if (environment.size == 1) return make_single_transport();
  switch (chosen(environment, options)) {
    case TransportKind::kMpi:
      return over_mpi(environment, options);
    case TransportKind::kNccl:
      return over_nccl(environment, options);
    default:
      return over_gloo(environment, options);
  }
}

std::string transports_built() {
  std::vector<std::string> built;
  if (kHasMpi) built.emplace_back("MPI");
  if (kHasGloo) built.emplace_back("Gloo");
  if (nccl_maker() != nullptr) built.emplace_back("NCCL");
  return built.empty() ? "none" : fmt::format("{}", fmt::join(built, ", "));
}

}  // namespace mpt
