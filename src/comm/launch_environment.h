// Which rank of how many this process is, as its launcher says in environment variables.
//
//   torchrun   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; without the local
//              ones, as Kubernetes starts one process a machine, a rank is the only one of its machine
//   MPI        OMPI_COMM_WORLD_* (Open MPI), PMI_* and MPI_LOCAL* (MPICH, Intel MPI), MV2_COMM_WORLD_*
//   (MVAPICH),
//              PMIX_RANK with Slurm's counts (srun --mpi=pmix)
//   Slurm      SLURM_PROCID and others, of a step that srun started; the shell of sbatch or salloc is one
//   process
//
// The launcher nearest to the process counts. Within a Slurm step that is MPI's or torchrun's, whose
// variables are there only if they started something. Of MPI and torchrun both, it is torchrun where
// TORCHELASTIC_RUN_ID is set, as if mpirun had started one torchrun a machine; without that they must agree,
// as if a wrapper had set RANK and WORLD_SIZE for programs that know no MPI, and MPI is taken.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/enum_names.h"

namespace mpt {

enum class Launcher : uint8_t { kNone, kMpi, kTorchrun, kSlurm };
template <>
struct EnumNames<Launcher> {
  static constexpr std::array<std::string_view, 4> kNames{"none", "mpi", "torchrun", "slurm"};
};

struct LaunchEnvironment {
  int64_t rank = 0, size = 1;
  int64_t local_rank = 0, local_size = 1;  // among the ranks of this machine
  Launcher launcher = Launcher::kNone;
  // Where rank 0 waits for the others where MPI does not bring them together; empty under mpirun. The port is
  // MPT_MASTER_PORT, else MASTER_PORT + 1: torchrun listens at MASTER_PORT itself. Under Slurm without these
  // it is made of the job's number, and the address is the first machine of the step.
  std::string master_address{};
  int master_port = 0;
  std::string run_id{};  // the same on all ranks of this run, another after a restart; may be empty
};

// The value of an environment variable, if it is set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Throws Error, naming variable, value and what would be accepted, where variables are missing, contradict
// each other or are no numbers.
LaunchEnvironment launch_environment(const EnvironmentLookup& lookup);
LaunchEnvironment launch_environment();  // of this process

// "rank 3 of 8 (torchrun, 3 of 4 on this machine)"
std::string description(const LaunchEnvironment& environment);

}  // namespace mpt
