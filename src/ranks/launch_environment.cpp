#include "ranks/launch_environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "core/check.h"

namespace mpt {
namespace {

constexpr int kMostPort = 65535;
constexpr int64_t kMostRanks = int64_t{1} << 20;
constexpr int kFirstDerivedPort = 20000, kDerivedPorts = 10000;  // below the ephemeral ports
// Step numbers from here up are batch scripts and interactive shells, not srun tasks.
constexpr int64_t kFirstSpecialStep = 0xFFFFFFF0;

std::optional<int64_t> parsed(std::string_view text) {
  int64_t number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (fault != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

class Variables {
 public:
  explicit Variables(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  // An empty variable counts as unset.
  [[nodiscard]] std::optional<std::string> text(const std::string& name) const {
    auto value = lookup_(name);
    return value && value->empty() ? std::nullopt : value;
  }
  [[nodiscard]] bool has(const std::string& name) const { return text(name).has_value(); }
  [[nodiscard]] std::optional<int64_t> number(const std::string& name, int64_t low,
                                              int64_t high) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto found = parsed(*value);
    if (!found || *found < low || *found > high)
      throw error("environment variable {}={}: expected a whole number from {} to {}", name, *value,
                  low, high);
    return found;
  }

 private:
  const EnvironmentLookup& lookup_;
};

struct Names {
  std::string rank, size, local_rank, local_size;
};

// Throws Error unless both or neither are set; names the missing one and the other.
void check_pair(const Variables& variables, const std::string& one, const std::string& other) {
  const auto require = [&](const std::string& there, const std::string& missing) {
    if (variables.has(there) && !variables.has(missing))
      throw error(
          "environment variable {}={} is set, but {} is not: set both, or neither for a single "
          "process",
          there, *variables.text(there), missing);
  };
  require(one, other);
  require(other, one);
}

struct Place {
  int64_t rank, size;
};

// Reads the rank and the number of ranks; nullopt if neither is set.
std::optional<Place> place(const Variables& variables, const std::string& rank,
                           const std::string& size) {
  check_pair(variables, rank, size);
  const auto of = variables.number(size, 1, kMostRanks);
  if (!of) return std::nullopt;
  const int64_t which = *variables.number(rank, 0, kMostRanks);
  if (which >= *of)
    throw error(
        "environment variables {}={} and {}={}: ranks start at 0 and are less than the number of "
        "ranks",
        rank, which, size, *of);
  return Place{which, *of};
}

std::optional<LaunchEnvironment> named(const Variables& variables, const Names& names,
                                       Launcher launcher) {
  const auto of_all = place(variables, names.rank, names.size);
  if (!of_all) return std::nullopt;
  LaunchEnvironment found{.rank = of_all->rank, .size = of_all->size, .launcher = launcher};
  const auto local = place(variables, names.local_rank, names.local_size);
  if (local) {
    found.local_rank = local->rank;
    found.local_size = local->size;
  }
  if (found.local_size > found.size || found.local_rank > found.rank)
    throw error("environment variables {}={} of {}={} contradict {}={} of {}={}", names.local_rank,
                found.local_rank, names.local_size, found.local_size, names.rank, found.rank,
                names.size, found.size);
  return found;
}

// --- Slurm ---------------------------------------------------------------------------------------

// Number of tasks on machine `node`, from a list such as "4(x2),3".
int64_t tasks_on_node(std::string_view name, const std::string& list, int64_t node) {
  std::string_view left = list;
  int64_t first = 0;
  while (!left.empty()) {
    const std::string_view item = left.substr(0, left.find(','));
    left.remove_prefix(std::min(left.size(), item.size() + 1));
    const size_t times = item.find("(x");
    const auto tasks = parsed(item.substr(0, times));
    std::optional<int64_t> nodes = 1;
    if (times != std::string_view::npos && item.ends_with(')'))
      nodes = parsed(item.substr(times + 2, item.size() - times - 3));
    if (!tasks || !nodes || *tasks < 1 || *nodes < 1) break;
    first += *nodes;
    if (node < first) return *tasks;
  }
  throw error(
      "environment variable {}={}: expected task counts such as 4(x2),3 that include machine {}",
      name, list, node);
}

// First machine in a list such as "gpu[07-09,12],cpu1".
std::string first_host(const std::string& list) {
  const size_t bracket = list.find_first_of("[,");
  if (bracket == std::string::npos || list[bracket] == ',') return list.substr(0, bracket);
  const size_t close = list.find(']', bracket);
  const size_t end = list.find_first_of("-,]", bracket);
  if (close == std::string::npos) return list;
  const size_t rest = std::min(list.find(',', close), list.size());
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) +
         list.substr(close + 1, rest - close - 1);
}

// Whether srun started this process as a task. Its children inherit the variables, and so does a
// job's shell.
bool in_slurm_step(const Variables& variables) {
  const auto step = variables.number("SLURM_STEP_ID", 0, int64_t{1} << 32);
  return step && *step < kFirstSpecialStep;
}

std::string slurm_size_name(const Variables& variables) {
  return variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

void set_slurm_locals(const Variables& variables, LaunchEnvironment& found) {
  const auto local = variables.number("SLURM_LOCALID", 0, kMostRanks);
  if (!local) return;
  found.local_rank = *local;
  const std::string name = variables.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE"
                                                                      : "SLURM_TASKS_PER_NODE";
  const auto list = variables.text(name);
  const int64_t node = variables.number("SLURM_NODEID", 0, kMostRanks).value_or(0);
  found.local_size = list ? tasks_on_node(name, *list, node) : found.local_rank + 1;
}

std::string slurm_run_id(const Variables& variables) {
  const auto word = [&](const char* name) { return variables.text(name).value_or("0"); };
  return fmt::format("slurm {}.{}.{}", word("SLURM_JOB_ID"), word("SLURM_STEP_ID"),
                     word("SLURM_RESTART_COUNT"));
}

// --- rendezvous address --------------------------------------------------------------------------

int master_port(const Variables& variables) {
  if (const auto ours = variables.number("MPT_MASTER_PORT", 1, kMostPort)) return int(*ours);
  const auto theirs = variables.number("MASTER_PORT", 1, kMostPort - 1);
  return theirs ? int(*theirs) + 1 : 0;
}

// Leaves the address empty if no variable provides it.
void set_slurm_meeting(const Variables& variables, LaunchEnvironment& found) {
  found.run_id = slurm_run_id(variables);
  const auto hosts = variables.text(variables.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST"
                                                                         : "SLURM_NODELIST");
  found.master_address = variables.text("MASTER_ADDR").value_or(hosts ? first_host(*hosts) : "");
  found.master_port = master_port(variables);
  if (found.master_port != 0) return;
  const int64_t job = variables.number("SLURM_JOB_ID", 0, int64_t{1} << 40).value_or(0);
  const int64_t step = *variables.number("SLURM_STEP_ID", 0, int64_t{1} << 32);
  found.master_port = kFirstDerivedPort + int((job * 16 + step) % kDerivedPorts);
}

// Where ranks meet that mpirun started, if this program has no MPI to connect them. The port
// follows from the name of the job.
void set_mpi_meeting(const Variables& variables, LaunchEnvironment& found) {
  const bool on_one_machine = found.local_size == found.size;
  found.master_address = variables.text("MASTER_ADDR").value_or(on_one_machine ? "127.0.0.1" : "");
  found.master_port = master_port(variables);
  std::string job;
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"})
    if (job.empty()) job = variables.text(name).value_or("");
  found.run_id = "mpi " + job;
  if (found.master_port == 0 && !job.empty())
    found.master_port = kFirstDerivedPort + int(std::hash<std::string>()(job) % kDerivedPorts);
  if (found.master_port == 0) found.master_address.clear();
}

// --- launchers -----------------------------------------------------------------------------------

std::optional<LaunchEnvironment> from_torchrun(const Variables& variables) {
  auto found = named(variables, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
                     Launcher::kTorchrun);
  if (!found) {
    // RANK and WORLD_SIZE are unset, so this one does not come from torchrun.
    if (variables.has("LOCAL_RANK"))
      throw error(
          "environment variable LOCAL_RANK={} is set, but RANK and WORLD_SIZE are not: set all of "
          "them, or none for a single process",
          *variables.text("LOCAL_RANK"));
    return std::nullopt;
  }
  if (const auto id = variables.text("MPT_LAUNCH_ID")) {
    found->launcher = Launcher::kLaunch;
    found->run_id = "launch " + *id;
    return found;
  }
  found->run_id = fmt::format("torchrun {} {}", variables.text("TORCHELASTIC_RUN_ID").value_or(""),
                              variables.text("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  return found;
}

// Adds the rendezvous address, needed if MPI does not connect the ranks. Not needed for a single
// rank.
void complete_torchrun(const Variables& variables, LaunchEnvironment& found) {
  if (found.size == 1) return;
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (variables.has(name) ||
        (name == std::string_view("MASTER_PORT") && variables.has("MPT_MASTER_PORT")))
      continue;
    throw error(
        "environment variable WORLD_SIZE={} is set, but {} is not: ranks need RANK, WORLD_SIZE, "
        "MASTER_ADDR and MASTER_PORT, and several on one machine LOCAL_RANK and LOCAL_WORLD_SIZE",
        found.size, name);
  }
  found.master_address = *variables.text("MASTER_ADDR");
  found.master_port = master_port(variables);
}

std::optional<LaunchEnvironment> from_mpi(const Variables& variables) {
  const std::array<Names, 3> kinds{{
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
       "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
       "MV2_COMM_WORLD_LOCAL_SIZE"},
      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
  }};
  for (const Names& names : kinds) {
    auto found = named(variables, names, Launcher::kMpi);
    if (!found) continue;
    // Slurm's counts describe this process only if srun started it as an MPI task.
    if (!variables.has(names.local_rank) && in_slurm_step(variables)) {
      set_slurm_locals(variables, *found);
      set_slurm_meeting(variables, *found);
    } else {
      set_mpi_meeting(variables, *found);
    }
    return found;
  }
  if (!variables.has("PMIX_RANK") || !in_slurm_step(variables)) return std::nullopt;
  const std::string size = slurm_size_name(variables);
  const auto of_all = place(variables, "PMIX_RANK", size);
  LaunchEnvironment found{.rank = of_all->rank, .size = of_all->size, .launcher = Launcher::kMpi};
  set_slurm_locals(variables, found);
  set_slurm_meeting(variables, found);
  return found;
}

std::optional<LaunchEnvironment> from_slurm(const Variables& variables) {
  if (!in_slurm_step(variables)) return std::nullopt;
  const std::string size = slurm_size_name(variables);
  const auto of_all = place(variables, "SLURM_PROCID", size);
  if (!of_all || of_all->size == 1) return std::nullopt;
  LaunchEnvironment found{.rank = of_all->rank, .size = of_all->size, .launcher = Launcher::kSlurm};
  set_slurm_locals(variables, found);
  set_slurm_meeting(variables, found);
  if (found.master_address.empty())
    throw error(
        "environment variable {}={} is set, but neither MASTER_ADDR nor SLURM_STEP_NODELIST is: "
        "one of them must name the machine of rank 0",
        size, found.size);
  return found;
}

}  // namespace

LaunchEnvironment launch_environment(const EnvironmentLookup& lookup) {
  const Variables variables(lookup);
  const auto mpi = from_mpi(variables);
  auto torchrun = from_torchrun(variables);
  const bool by_launch = torchrun && torchrun->launcher == Launcher::kLaunch;
  if (mpi && torchrun && !by_launch && !variables.has("TORCHELASTIC_RUN_ID")) {
    if (mpi->rank != torchrun->rank || mpi->size != torchrun->size)
      throw error(
          "environment variables RANK={} and WORLD_SIZE={} contradict MPI, which started this "
          "process as rank {} of {}: unset them or make them match",
          torchrun->rank, torchrun->size, mpi->rank, mpi->size);
    return *mpi;
  }
  if (torchrun) {
    complete_torchrun(variables, *torchrun);
    return *torchrun;
  }
  if (mpi) return *mpi;
  return from_slurm(variables).value_or(LaunchEnvironment{});
}

LaunchEnvironment launch_environment() {
  return launch_environment([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

std::string description(const LaunchEnvironment& environment) {
  if (environment.launcher == Launcher::kNone) return "a single process";
  return fmt::format("rank {} of {} ({}, {} of {} on this machine)", environment.rank,
                     environment.size, name_of(environment.launcher), environment.local_rank,
                     environment.local_size);
}

}  // namespace mpt
