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
  std::string resume;     // "" new run, "auto" continue or start, "latest" continue, or a path
  std::string program{};  // what `mpretrain --version` prints, for report.json
  std::optional<int64_t> profile_steps{};  // profile; nothing is written
};

// Warm-up steps, excluded from a profile.
inline constexpr int64_t kUnprofiledSteps = 3;

enum class TrainEnd : uint8_t {
  kComplete,
  kStopped
};  // kStopped: by a signal; the last finished step is saved

TrainEnd run_train(const TrainCommand& command);

enum class PlanFormat : uint8_t { kText, kJson };
enum class PlanCheck : uint8_t { kNo, kYes };

struct PlanCommand {
  std::string config;
  std::vector<std::string> overrides;
  PlanFormat format = PlanFormat::kText;
  int64_t ranks = 1;  // plan memory and traffic of the first of so many
  PlanCheck check = PlanCheck::kNo;
  bool resume = false;  // of a run that goes on
};

// Prints a run's memory, duration and whether it could start. With PlanCheck::kYes, then throws
// Error if it could not.
void run_plan(const PlanCommand& command);

}  // namespace mpt
