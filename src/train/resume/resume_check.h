// Checks whether a checkpoint can be continued with the present config.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_state.h"
#include "config/run_config.h"
#include "device/device.h"
#include "train/resources/memory_fit.h"

namespace mpt {

// Throws Error if counts of the checkpoint contradict each other, or if a key has changed that must
// not change between a checkpoint and its continuation (shape, formats, data order, seed, rule),
// naming the first. Logs every other changed key, as a warning if it affects training, and how a
// new length changes the schedule.
void check_resumable(const TrainState& saved, const std::string& checkpoint,
                     const RunConfig& config);

// Returns the saved run's config; nullopt if it is no longer valid.
std::optional<RunConfig> saved_config(const TrainState& saved);

// Returns the batch rows of a saved run in a phase, whole steps if its config names none; those of
// the saved phase if there is no such phase, and zeros if its config is no longer valid.
// galore_batch is known only for the saved phase, and 0 otherwise.
RecordedRows rows_of(const TrainState& saved, size_t phase = 0);

bool left_evaluation(const TrainState& saved);
// Returns the number of the phase to continue.
size_t phase_to_continue(const std::vector<RunPhase>& phases, const TrainState& saved);

// Returns the GEMM algorithms to save in a checkpoint, with the device they were chosen on.
nlohmann::json gemms_json(Device& device);
// Restores these algorithms. Warns if the checkpoint was made on another device, whose results
// differ in the last bits. Throws Error if the saved value does not have gemms_json()'s form.
void restore_gemms(const TrainState& saved, const std::string& checkpoint, Device& device);

// Returns a value of the checkpoint's `extra`; null if missing.
nlohmann::json extra_of(const TrainState& saved, const std::string& key);
// Returns a count from `extra`. Throws Error if it is missing or not a whole number >= 0.
int64_t saved_count(const TrainState& saved, const std::string& checkpoint, const std::string& key);

}  // namespace mpt
