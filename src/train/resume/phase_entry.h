// State that a phase of a run takes over from the last checkpoint of the phase before it.
//
//   weights     in the phase's format: unchanged if it is the same, else rounded to nearest
//   moments     of the same rule, in the phase's format; else zeros, and bias correction restarts
//   residuals   of the same rounding of weights in the same format; else those of new weights
//   EMA         unchanged
//   FP8 scales  of GEMMs with the same settings; else initial ones
//
// The run's other state, such as steps and the position in the data, continues.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/io/file_system.h"
#include "device/device.h"
#include "train/step/training_model.h"

namespace mpt {

struct PhaseEntry {
  bool keeps_moments = false;
  std::string text{};  // "weights nvfp4 to fp32; kept m, v; new master"
};
// `checkpoint` is verified, `before` is its config and `config` that of `model`.
PhaseEntry enter_phase(FileSystem& fs, const std::string& checkpoint, const RunConfig& before,
                       const RunConfig& config, TrainingModel& model, Device& device);

}  // namespace mpt
