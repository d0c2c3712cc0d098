// A checkpoint of weights alone, of step 0, in the directory of a run that has not trained:
//
//   config.json  tokenizer.model  data_manifest.json     the last two if they are known
//   checkpoints/step_00000000/
//
// eval, generate, export and train.init_from take it like that of a run. It has no states of an
// optimizer and no place in data, so a run cannot be resumed from it, and its state says so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_files.h"
#include "config/run_config.h"
#include "core/io/atomic_output.h"
#include "core/io/file_system.h"
#include "inference/hugging_face_config.h"
#include "inference/weight_source.h"

namespace mpt {

// The config of such a checkpoint: this model, this context, weights in that format, with the
// format's options as in `base` if that has it too. `overrides` ("precision.x=y") may set the
// precision section apart from the format itself; GEMMs cannot be fp8, whose scales are states of a
// run.
struct WeightsConfig {
  std::string output;  // the directory; its name is that of the config
  WeightFormat weights = kDefaultWeights;
  std::vector<std::string> overrides{};
};
// Of `base`, takes model, data, batch, eval and seed.
RunConfig config_of_weights(const RunConfig& base, const WeightsConfig& wanted);

struct WeightsCheckpoint {
  std::string output;  // the directory
  Overwrite overwrite = Overwrite::kNo;
  RunConfig config;
  std::string tokenizer{};  // files to copy; "": none
  std::string manifest{};
  nlohmann::json weights_of;  // where the weights come from, for people
  SourceTexts source;         // of the model that was imported
};

// Throws Error if the output cannot be written (check_output).
void check_weights_output(FileSystem& fs, const std::string& output, Overwrite overwrite);

// Encodes the weights, compares them with their source, and writes the directory, which appears
// whole or not at all. Throws Error before it takes memory that is not there. `device` is a CPU.
WeightChanges write_weights_checkpoint(FileSystem& fs, const WeightsCheckpoint& what,
                                       WeightSource& source, Device& device);

// Whether a state is that of a checkpoint of weights alone.
bool holds_weights_only(const TrainState& state);

// The verb `convert`: the weights of a checkpoint in another stored format.

struct ConvertOptions {
  std::string checkpoint;  // a checkpoint, or a run's directory
  WeightsConfig wanted;
  Overwrite overwrite = Overwrite::kNo;
};

struct ConvertedCheckpoint {
  std::string checkpoint;  // the one that was read
  int64_t step = 0;        // of it
  RunConfig config;        // of the new one
  WeightChanges changes;
};

// Widening is exact, narrowing rounds to nearest; weights that have the format already are copied.
ConvertedCheckpoint convert_checkpoint(FileSystem& fs, const ConvertOptions& options);

// The verb `checkpoint average`: the mean of the weights of several checkpoints of one model, or
// the EMA that a run kept.

struct AverageOptions {
  std::vector<std::string>
      checkpoints;                // checkpoints, or a run's directory for its newest good one
  std::optional<int64_t> last{};  // of one run instead: its newest so many
  double decay = 1;               // in (0, 1]: the weight of each is that of the next times this
  bool ema = false;               // the EMA that one checkpoint holds instead (train.ema_decay)
  WeightsConfig wanted{.output = {}, .weights = WeightFormat::kF32};
  Overwrite overwrite = Overwrite::kNo;
};

struct AveragedCheckpoints {
  std::vector<std::string> checkpoints;  // those that were read
  RunConfig config;                      // of the new one
  WeightChanges changes;                 // by storing the mean
};

// The checkpoints are in their order, the newest last. Means are formed in FP64, and rounded once
// to FP32 and once more to the stored format. Data, tokenizer and seed are those of the last
// checkpoint. Throws Error unless there are two or more, of the same model, or one with an EMA.
AveragedCheckpoints average_checkpoints(FileSystem& fs, const AverageOptions& options);

}  // namespace mpt
