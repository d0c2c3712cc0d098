// Rank and number of ranks of this process, from its launcher's environment variables.
//
//   launch     torchrun's, and MPT_LAUNCH_ID (`mpretrain launch`)
//   torchrun   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; without
//              the local ones (Kubernetes starts one process per machine) a rank is the only one
//              on its machine
//   MPI        OMPI_COMM_WORLD_* (Open MPI), PMI_* and MPI_LOCAL* (MPICH, Intel MPI),
//              MV2_COMM_WORLD_* (MVAPICH), PMIX_RANK with Slurm's counts (srun --mpi=pmix)
//   Slurm      SLURM_PROCID and others, in a step started by srun; the shell of sbatch or salloc is
//              a single process
//
// The launcher closest to the process wins: MPT_LAUNCH_ID before all others. Within a Slurm step
// that is MPI or torchrun, whose variables are set only if they started something. If both MPI's
// and torchrun's variables are set: with TORCHELASTIC_RUN_ID torchrun wins (mpirun started one
// torchrun per machine); without it they must agree (a wrapper set RANK and WORLD_SIZE for programs
// without MPI), and MPI wins.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/enum_names.h"

namespace mpt {

enum class Launcher : uint8_t { kNone, kMpi, kTorchrun, kSlurm, kLaunch };
template <>
struct EnumNames<Launcher> {
  static constexpr std::array<std::string_view, 5> kNames{"none", "mpi", "torchrun", "slurm",
                                                          "launch"};
};

struct LaunchEnvironment {
  int64_t rank = 0, size = 1;
  int64_t local_rank = 0, local_size = 1;  // among the ranks on this machine
  Launcher launcher = Launcher::kNone;
  // Where rank 0 listens if MPI does not connect the ranks. The port is MPT_MASTER_PORT, else
  // MASTER_PORT + 1, because torchrun itself listens on MASTER_PORT. Under Slurm without either,
  // the port is derived from the job and step numbers and the address is the first machine of the
  // step. Under mpirun it is derived from the job's name and the address is this machine if all
  // ranks are on it; empty if they are not and MASTER_ADDR is unset.
  std::string master_address{};
  int master_port = 0;
  std::string run_id{};  // equal on all ranks of a run, different after a restart; may be empty
};

// Returns the value of an environment variable, if set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Throws Error naming variable, value and accepted values if variables are missing, contradictory
// or not numbers.
LaunchEnvironment launch_environment(const EnvironmentLookup& lookup);
LaunchEnvironment launch_environment();  // from this process's environment

// "rank 3 of 8 (torchrun, 3 of 4 on this machine)"
std::string description(const LaunchEnvironment& environment);

}  // namespace mpt
