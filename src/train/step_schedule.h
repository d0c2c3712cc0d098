// Schedule of evaluations or saves: every `every` steps, and at the end of each phase.
#pragma once

#include <cstdint>
#include <vector>

#include "config/run_config.h"

namespace mpt {

// `every`: 0 for only the ends of phases.
inline bool is_due(const RunPhase& phase, int64_t step, int64_t every) {
  return step == phase.last_step || (every > 0 && step % every == 0);
}

class DueSteps {
 public:
  DueSteps(const RunConfig& config, int64_t every);

  // Number of scheduled steps up to and including a step, or in the whole run.
  [[nodiscard]] int64_t count(int64_t last_step) const;
  [[nodiscard]] int64_t count() const { return count(ends_.back()); }
  // Returns the number-th scheduled step, from 1 to count().
  [[nodiscard]] int64_t step(int64_t number) const;

 private:
  int64_t every_;
  std::vector<int64_t> ends_;  // of phases
};

}  // namespace mpt
