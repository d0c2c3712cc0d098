// The weights of a checkpoint on a device, for the verbs that use a model without training it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "config/run_config.h"
#include "core/io/file_system.h"
#include "data/tokenizer.h"
#include "device/device.h"
#include "model/weight_store.h"

namespace mpt {

// The directory of one checkpoint that verifies: `path` itself, or the newest good checkpoint of a run's
// directory or of the checkpoints/ in it. Anything else is an Error that says what would be accepted.
std::string find_checkpoint(FileSystem& fs, const std::string& path);

// What the weights are loaded for: tokens one at a time, in the run's activations and without FP8; a file for
// other programs, in the masters' own type where that stands alone, else BF16; the loss as the run computes
// it.
enum class ModelUse : uint8_t { kGenerate, kExport, kEvaluate };

struct LoadedModel {
  std::string checkpoint;  // its directory
  RunConfig config;        // that it was trained with; files of data as located_data() finds them
  int64_t step = 0;
  int64_t tokens = 0;  // trained on
  std::unique_ptr<Device> device;
  std::unique_ptr<Allocator> allocator;
  std::unique_ptr<WeightStore> weights;  // without gradients

  [[nodiscard]] DType storage() const { return weights->options().storage; }
};

// Verifies the checkpoint and reads its weights; optimizer states are left where they are.
// `path` as find_checkpoint().
LoadedModel load_model(FileSystem& fs, const std::string& path, const DeviceConfig& device,
                       ModelUse use = ModelUse::kGenerate);

struct TokenizerFile {
  std::string path;          // "" if there is none
  bool prepend_bos = false;  // documents were written with BOS in front
  std::string data_hash;     // of the tokenizer that made the data, where that is known
};

// What goes with a model: `given` if it is not empty, else the one that the run of `checkpoint` keeps, else
// data.tokenizer of the config, else the one that the manifest beside the data names. Files that are gone are
// passed over, except the given one.
TokenizerFile find_tokenizer(const RunConfig& config, const std::string& given,
                             const std::string& checkpoint = "");

// Where find_tokenizer() has looked in vain, and --tokenizer.
std::string missing_tokenizer(const RunConfig& config);

// Throws Error if find_tokenizer() found none, or it has more pieces than the model. Warns if the data beside
// which the manifest lies was made with another one.
Tokenizer load_tokenizer(const RunConfig& config, const TokenizerFile& file);

}  // namespace mpt
