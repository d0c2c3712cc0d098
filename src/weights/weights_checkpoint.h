// A checkpoint with weights only, at step 0, in the directory of a run that has not trained:
//
//   config.json  tokenizer.model  data_manifest.json     the last two if they are known
//   checkpoints/step_00000000/
//
// eval, generate, export and train.init_from accept it like a run's checkpoint. It has no optimizer
// states and no position in the data, so no run can be resumed from it, and its state says so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_state.h"
#include "config/run_config.h"
#include "core/io/file_system.h"
#include "core/io/output_directory.h"
#include "weights/source_texts.h"
#include "weights/weight_source.h"

namespace mpt {

// The config of such a checkpoint: this model, this context, weights in that format, with the
// format's options from `base` if that uses the format too. `overrides` ("precision.x=y") may set
// the precision section except for the format itself; GEMMs cannot be fp8, whose scales are states
// of a run.
struct WeightsConfig {
  std::string output;  // the directory, whose name becomes the config's
  WeightFormat weights = kDefaultWeights;
  std::vector<std::string> overrides{};
};
// Takes model, data, batch, eval and seed from `base`.
RunConfig config_of_weights(const RunConfig& base, const WeightsConfig& wanted);

struct WeightsCheckpoint {
  std::string output;  // the directory
  Overwrite overwrite = Overwrite::kNo;
  RunConfig config;
  std::string tokenizer{};  // files to copy; "": none
  std::string manifest{};
  nlohmann::json weights_of;  // origin of the weights, for people
  SourceTexts source;         // for an imported model
};

// Throws Error if the output cannot be written (check_output).
void check_weights_output(FileSystem& fs, const std::string& output, Overwrite overwrite);

// Encodes the weights, compares them with their source, and writes the directory, which appears
// completely or not at all. Throws Error before allocating if memory is insufficient. `device` is a
// CPU.
WeightChanges write_weights_checkpoint(FileSystem& fs, const WeightsCheckpoint& what,
                                       WeightSource& source, Device& device);

// Whether a state belongs to a checkpoint with weights only.
bool holds_weights_only(const TrainState& state);

}  // namespace mpt
