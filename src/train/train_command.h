// The verbs `train` and `plan`, as the command line calls them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mpt {

struct TrainCommand {
  std::string config;                  // a path, or the name of an installed config
  std::vector<std::string> overrides;  // "a.b=c"
  std::string resume;  // "": a new run; "auto": continue or start; "latest": continue; or a path
  std::optional<int64_t> profile_steps{};  // a new run that writes nothing, and prints where its time goes
};

// Steps before the first that counts in a profile.
inline constexpr int64_t kUnprofiledSteps = 3;

enum class TrainEnd : uint8_t { kComplete, kStopped };  // by a signal; what is finished is saved

TrainEnd run_train(const TrainCommand& command);

enum class PlanFormat : uint8_t { kText, kJson };
enum class PlanCheck : uint8_t { kNo, kYes };

struct PlanCommand {
  std::string config;
  std::vector<std::string> overrides;
  PlanFormat format = PlanFormat::kText;
  int64_t ranks = 1;  // memory and traffic of the first of so many
  PlanCheck check = PlanCheck::kNo;
};

// Prints what a run would take, how long, and whether it could start. With PlanCheck::kYes throws Error,
// after that, if it could not.
void run_plan(const PlanCommand& command);

}  // namespace mpt
