// Whether a checkpoint may be continued with the config at hand.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_files.h"
#include "config/run_config.h"
#include "data/sequence_source.h"
#include "device/device.h"

namespace mpt {

// Throws Error naming the first key that must not change between a checkpoint and its continuation (shape,
// formats, data order, seed, rule) or a change of the training data; logs every other key that differs, as a
// warning unless it alters nothing that is trained, and what another length does to the schedule.
void check_resumable(const TrainState& saved, const std::string& checkpoint, const RunConfig& config,
                     const SequenceSource& training_data);

// The algorithms of GEMMs, as a checkpoint keeps them beside the device they were chosen on.
nlohmann::json gemms_json(Device& device);
// Chooses the same again. Warns if the checkpoint was made on another device, whose results differ in their
// last bits. Throws Error if what it kept is not what gemms_json() writes.
void restore_gemms(const TrainState& saved, const std::string& checkpoint, Device& device);

// A count among what a trainer saved besides the config. Throws Error if it is not there.
int64_t saved_count(const TrainState& saved, const std::string& checkpoint, const std::string& key);

}  // namespace mpt
