#include "train/run_state.h"

#include "train/resume/resume_check.h"

namespace mpt {
namespace {

constexpr const char* kInitFrom = "init_from";

}  // namespace

RunState RunState::of(const TrainState& saved, const std::string& checkpoint) {
  const bool counts_earlier = !extra_of(saved, kEarlierUpdates).is_null();
  return {.step = saved.step,
          .tokens = saved.tokens,
          .skipped = saved_count(saved, checkpoint, kSkippedSteps),
          .earlier_updates = counts_earlier ? saved_count(saved, checkpoint, kEarlierUpdates) : 0,
          .init_from = saved.extra.value(kInitFrom, nlohmann::json())};
}

void RunState::add_to(TrainState& state) const {
  state.step = step;
  state.tokens = tokens;
  state.extra[kSkippedSteps] = skipped;
  if (evaluation_pending) state.extra[kEvaluationLeft] = true;
  if (earlier_updates > 0) state.extra[kEarlierUpdates] = earlier_updates;
  if (!init_from.is_null()) state.extra[kInitFrom] = init_from;
}

}  // namespace mpt
