// Loads the weights of a checkpoint to a device, for use without training.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "checkpoint/checkpoint_store.h"
#include "config/run_config.h"
#include "core/check.h"
#include "core/io/file_system.h"
#include "data/tokenizer.h"
#include "device/device.h"
#include "inference/hugging_face_config.h"
#include "model/weight_store.h"

namespace mpt {

// The directory of a checkpoint that verifies: `path` itself, or the newest good checkpoint of a
// run's directory or its checkpoints/. Otherwise throws Error naming what is accepted.
std::string find_checkpoint(FileSystem& fs, const std::string& path);

// Whether `checkpoint`, which was found for `path`, is not there any more.
bool was_removed(FileSystem& fs, const std::string& checkpoint, const std::string& path);

// use(checkpoints) of those that find() returns for `path`. A run that goes on may remove one of
// them meanwhile (checkpoint.keep_last): then both once more, for newer ones.
template <class Find, class Use>
auto with_checkpoints(FileSystem& fs, const std::string& path, const Find& find, const Use& use) {
  for (int look = 1;; ++look) {
    const std::vector<std::string> found = find();
    const auto removed = [&](const std::string& one) { return was_removed(fs, one, path); };
    try {
      return use(found);
    } catch (const Error&) {
      if (look == kMostLooks || std::ranges::none_of(found, removed)) throw;
    }
    spdlog::info("{}: its run removed a checkpoint while it was read; newer ones are taken", path);
  }
}
// The same for the one that find_checkpoint() finds.
template <class Use>
auto with_checkpoint(FileSystem& fs, const std::string& path, const Use& use) {
  return with_checkpoints(
      fs, path, [&] { return std::vector{find_checkpoint(fs, path)}; },
      [&](const std::vector<std::string>& found) { return use(found.front()); });
}

// A checkpoint whose weights can be used.
struct SavedWeights {
  std::string checkpoint;  // its directory; it was verified
  RunConfig config;        // of training; data files as located_data() finds them
  int64_t step = 0;
  int64_t tokens = 0;  // trained on
  std::string hash;    // of its state.json, which seals its other files
  SourceTexts source;  // of an imported model

  // For records: path, step, hash.
  [[nodiscard]] nlohmann::json json() const;
};
// Says in the log what a run keeps beside its weights, where these alone are taken.
void tell_what_is_left_out(const SavedWeights& saved);
// `path` as for find_checkpoint().
SavedWeights find_saved_weights(FileSystem& fs, const std::string& path);
// Of the directory of a checkpoint that was verified before.
SavedWeights saved_weights_at(FileSystem& fs, const std::string& checkpoint);

// The use of the weights. kGenerate: one token at a time, in the run's activation type and without
// FP8. kExport: a file for other programs, in the masters' type if its elements stand alone, else
// BF16; kExportFp32: in FP32; kExportCodes: as stored, without a decoded copy of linear layers.
// kAsExported: the values of kExport, computed with in FP32. kEvaluate: the loss as the run
// computes it.
enum class ModelUse : uint8_t {
  kGenerate,
  kExport,
  kExportFp32,
  kExportCodes,
  kAsExported,
  kEvaluate
};

struct LoadedModel : SavedWeights {
  std::unique_ptr<Device> device;
  std::unique_ptr<Allocator> allocator;
  std::unique_ptr<WeightStore> weights;  // without gradients

  [[nodiscard]] DType storage() const { return weights->options().storage; }
};

// Throws Error "NEEDS 3.2 GiB, 2.0 GiB is available" if the device has less memory than planned.
// `needs` is like "DIR: its weights need".
void require_memory(const PlanningAllocator& plan, const Device& device, const std::string& needs);

// What make(allocator) returns; throws as require_memory() does, before memory is taken.
template <class Make>
auto make_within_memory(Device& device, Allocator& allocator, const std::string& needs,
                        const Make& make) {
  PlanningAllocator plan(device.alignment());
  static_cast<void>(make(plan));
  require_memory(plan, device, needs);
  return make(allocator);
}

// Verifies the checkpoint and reads its weights, not its optimizer states. `path` as for
// find_checkpoint().
LoadedModel load_model(FileSystem& fs, const std::string& path, const DeviceConfig& device,
                       ModelUse use = ModelUse::kGenerate);

// The same for the directory of a checkpoint that was just verified.
LoadedModel load_verified_model(FileSystem& fs, const std::string& checkpoint,
                                const DeviceConfig& device, ModelUse use);

struct TokenizerFile {
  std::string path;          // "" if there is none
  bool prepend_bos = false;  // texts that the model was trained on began with BOS
  std::string data_hash;     // of the data's tokenizer; "" if unknown
};

// The tokenizer of a model: `given` if not empty, else the copy kept by the run of its checkpoint,
// else data.tokenizer of the config, else the one named by the manifest beside the data. Missing
// files are skipped, except `given`.
TokenizerFile find_tokenizer(const SavedWeights& model, const std::string& given);
// The same for a run that has no checkpoint yet.
TokenizerFile find_tokenizer(const RunConfig& config, const std::string& given);

// Error text: where find_tokenizer() looked, and a hint at --tokenizer.
std::string missing_tokenizer(const RunConfig& config);

// Throws Error if find_tokenizer() found none, or if it has more pieces than the model's
// vocabulary. Warns if the data's manifest names another tokenizer hash.
Tokenizer load_tokenizer(const RunConfig& config, const TokenizerFile& file);

}  // namespace mpt
