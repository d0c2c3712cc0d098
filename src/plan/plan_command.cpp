#include "plan/plan_command.h"

#include <iostream>
#include <limits>
#include <memory>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "config/run_data.h"
#include "config/run_device.h"
#include "core/check.h"
#include "core/json/json_parse.h"
#include "plan/run_plan.h"
#include "train/reports/run_report.h"
#include "train/resources/memory_fit.h"

namespace mpt {

void run_plan(const PlanCommand& command) {
  const RunConfig loaded =
      run_phases(load_run_config(command.config, command.overrides)).front().config;
  const std::unique_ptr<Device> device = make_planning_device(loaded.device);
  const Communicator ranks = Communicator::planned(0, command.ranks);
  const ChosenRows chosen =
      choose_rows(loaded, *device, ranks, free_memory(*device, ranks_sharing(*device, ranks)));
  const RunConfig& config = chosen.config;
  nlohmann::ordered_json figures =
      plan_json(config, *device, ranks);  // before anything is measured
  const std::string report = plan_report(config, *device, ranks);
  const bool checks = command.check == PlanCheck::kYes;
  const RunPlan plan =
      plan_of(chosen, *device, ranks,
              {.saved = command.resume ? Checkpoints::kSome : Checkpoints::kNone,
               .scanned_tokens = checks ? std::numeric_limits<int64_t>::max() : kScannedTokens});
  if (command.format == PlanFormat::kJson) {
    figures.update(verdict_json(config, plan));
    std::cout << json_text(figures, 2) << "\n";
  } else {
    std::cout << report << verdict(config, plan);
  }
  if (checks && !plan.problems.empty())
    throw error("{} cannot start: {}", config.name, fmt::join(plan.problems, "; "));
}

}  // namespace mpt
