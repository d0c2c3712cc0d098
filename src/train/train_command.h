// The verbs `train` and `plan`, as the command line calls them.
#pragma once

#include <string>
#include <vector>

namespace mpt {

struct TrainCommand {
  std::string config;                  // a path, or the name of an installed config
  std::vector<std::string> overrides;  // "a.b=c"
  std::string resume;  // "": a new run; "auto": continue or start; "latest": continue; or a path
};

void run_train(const TrainCommand& command);

struct PlanCommand {
  std::string config;
  std::vector<std::string> overrides;
};

// Prints what a run would take, without its data and without allocating.
void run_plan(const PlanCommand& command);

}  // namespace mpt
