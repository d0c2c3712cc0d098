#include "comm/communicators.h"

#include "core/check.h"

#ifdef MPT_WITH_MPI
#include "comm/mpi/mpi_communicator.h"
#endif
#ifdef MPT_WITH_NCCL
#include "comm/cuda/nccl_communicator.h"
#endif

namespace mpt {
namespace {

#ifdef MPT_WITH_MPI
constexpr bool kHasMpi = true;
#else
constexpr bool kHasMpi = false;
#endif
#ifdef MPT_WITH_NCCL
constexpr bool kHasNccl = true;
#else
constexpr bool kHasNccl = false;
#endif

Transport chosen(const CommOptions& options) {
  const bool cuda = options.backend == Backend::kCuda;
  const Transport transport =
      options.transport == Transport::kAuto ? (cuda ? Transport::kNccl : Transport::kMpi) : options.transport;
  if (transport == Transport::kNccl && !cuda)
    throw error("NCCL carries tensors of GPUs only; ranks on the CPU need MPI: start them with mpirun");
  if (transport == Transport::kMpi && cuda)
    throw error("MPI carries tensors of host memory only; ranks on GPUs need NCCL");
  return transport;
}

std::unique_ptr<Communicator> over_mpi(const RankEnvironment& environment, const CommOptions& options) {
  if (environment.launcher != Launcher::kMpi)
    throw error("{} on the CPU: ranks on the CPU need MPI: start them with mpirun", description(environment));
#ifdef MPT_WITH_MPI
  return make_mpi_communicator(
      {.rank = environment.rank, .size = environment.size, .timeout = options.timeout});
#else
  static_cast<void>(options);
  throw error(
      "{}: this program was built without MPI: install libopenmpi-dev and openmpi-bin, and build it again",
      description(environment));
#endif
}

std::unique_ptr<Communicator> over_nccl(const RankEnvironment& environment, const CommOptions& options) {
#ifdef MPT_WITH_NCCL
  const bool through_mpi =
      environment.launcher == Launcher::kMpi && (kHasMpi || environment.master_address.empty());
  return make_nccl_communicator(environment, {.timeout = options.timeout, .stream = options.stream},
                                through_mpi ? over_mpi(environment, options) : nullptr);
#else
  static_cast<void>(options);
  throw error("{} on GPUs: this program was built without NCCL: install libnccl-dev, and build it again",
              description(environment));
#endif
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(const RankEnvironment& environment,
                                                const CommOptions& options) {
  if (environment.size == 1) return make_single_communicator();
  return chosen(options) == Transport::kMpi ? over_mpi(environment, options)
                                            : over_nccl(environment, options);
}

std::string transports_built() {
  return fmt::format("{}MPI, {}NCCL", kHasMpi ? "" : "no ", kHasNccl ? "" : "no ");
}

}  // namespace mpt
