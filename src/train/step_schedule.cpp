#include "train/step_schedule.h"

#include "core/check.h"

namespace mpt {

DueSteps::DueSteps(const RunConfig& config, int64_t every) : every_(every) {
  for (const RunPhase& phase : run_phases(config)) ends_.push_back(phase.last_step);
}

int64_t DueSteps::count(int64_t last_step) const {
  int64_t count = every_ > 0 ? last_step / every_ : 0;
  for (const int64_t end : ends_) count += end <= last_step && (every_ == 0 || end % every_ != 0);
  return count;
}

// Computed without a list, which would be as long as the run.
int64_t DueSteps::step(int64_t number) const {
  check(number >= 1 && number <= count(), "number {} of {} steps", number, count());
  int64_t least = 1, most = ends_.back();
  while (least < most) {
    const int64_t middle = least + (most - least) / 2;
    if (count(middle) >= number)
      most = middle;
    else
      least = middle + 1;
  }
  return least;
}

}  // namespace mpt
