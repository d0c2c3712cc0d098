// State of a run besides its tensors and the position in its data, as stored in state.json.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_state.h"

namespace mpt {

// Keys of a state's `extra`. Set if a run was stopped during the evaluation of its last step:
inline constexpr const char* kEvaluationLeft = "evaluation_left";
// Counts of steps without an update, and of updates before the moments began.
inline constexpr const char* kSkippedSteps = "skipped_steps";
inline constexpr const char* kEarlierUpdates = "earlier_updates";

struct RunState {
  int64_t step = 0;                 // optimizer steps done
  int64_t tokens = 0;               // predicted so far
  int64_t skipped = 0;              // steps done without an update
  int64_t earlier_updates = 0;      // before the moments began
  bool evaluation_pending = false;  // of this step: the run was stopped during it
  nlohmann::json init_from{};       // source of the weights of step 0; null if they were drawn

  // Throws Error if a count is missing or invalid. Does not take over a pending evaluation.
  static RunState of(const TrainState& saved, const std::string& checkpoint);
  void add_to(TrainState& state) const;
  // Updates made since the moments began, which bias correction counts.
  [[nodiscard]] int64_t updates() const { return step - skipped - earlier_updates; }
};

}  // namespace mpt
