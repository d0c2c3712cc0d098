// Whether a checkpoint can be continued with the present config.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_files.h"
#include "config/run_config.h"
#include "device/device.h"
#include "train/memory_fit.h"

namespace mpt {

// In a state's `extra`: set if the run was stopped within the evaluation of its last step.
inline constexpr const char* kEvaluationLeft = "evaluation_left";
// There, counts: of steps without an update, and of updates before the moments began.
inline constexpr const char* kSkippedSteps = "skipped_steps";
inline constexpr const char* kEarlierUpdates = "earlier_updates";

// Throws Error if counts of the checkpoint contradict each other, and naming the first changed key
// that must not change between a checkpoint and its continuation (shape, formats, data order, seed,
// rule). Logs every other changed key, as a warning if it affects training, and how a new length
// changes the schedule.
void check_resumable(const TrainState& saved, const std::string& checkpoint,
                     const RunConfig& config);

// The saved run's config; nothing if it is no longer valid.
std::optional<RunConfig> saved_config(const TrainState& saved);

// The rows of a saved run's batches in a phase, whole steps where its config names none; of the
// phase that saved if it has no such phase, and zeros if its config is no longer valid. Its
// galore_batch is known of the phase that saved alone, and otherwise 0.
RecordedRows rows_of(const TrainState& saved, size_t phase = 0);

bool left_evaluation(const TrainState& saved);
// The number of the phase that goes on from there.
size_t phase_to_continue(const std::vector<RunPhase>& phases, const TrainState& saved);

// The GEMM algorithms for a checkpoint, with the device they were chosen on.
nlohmann::json gemms_json(Device& device);
// Restores these algorithms. Warns if the checkpoint was made on another device, whose results
// differ in the last bits. Throws Error if the saved value does not have gemms_json()'s form.
void restore_gemms(const TrainState& saved, const std::string& checkpoint, Device& device);

// Of the checkpoint's `extra`; null if it is not there.
nlohmann::json extra_of(const TrainState& saved, const std::string& key);
// A count from there. Throws Error if it is missing or not a whole number >= 0.
int64_t saved_count(const TrainState& saved, const std::string& checkpoint, const std::string& key);

}  // namespace mpt
