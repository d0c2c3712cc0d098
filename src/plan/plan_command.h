// The verb `plan`, as called from the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mpt {

enum class PlanFormat : uint8_t { kText, kJson };
enum class PlanCheck : uint8_t { kNo, kYes };

struct PlanCommand {
  std::string config;
  std::vector<std::string> overrides;
  PlanFormat format = PlanFormat::kText;
  int64_t ranks = 1;  // plan memory and traffic of the first of this many
  PlanCheck check = PlanCheck::kNo;
  bool resume = false;  // plan for a resumed run
};

// Prints a run's memory, duration and whether it could start. With PlanCheck::kYes, throws Error
// afterward if it could not.
void run_plan(const PlanCommand& command);

}  // namespace mpt
