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
#include "device/device.h"
#include "model/weight_store.h"
#include "text/tokenizer.h"
#include "weights/source_texts.h"

namespace mpt {

// Returns the directory of a checkpoint that verifies: `path` itself, or the newest good checkpoint
// in a run's directory or its checkpoints/. Otherwise throws Error naming the accepted paths.
std::string find_checkpoint(FileSystem& fs, const std::string& path);

// Whether `checkpoint`, found earlier for `path`, has been removed since.
bool was_removed(FileSystem& fs, const std::string& checkpoint, const std::string& path);

// Returns use(checkpoints) with the checkpoints that find() returns for `path`. A run still in
// progress may remove one of them meanwhile (checkpoint.keep_last); then find() and use() are
// repeated with newer ones.
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
// Like with_checkpoints(), for the single checkpoint that find_checkpoint() finds.
template <class Use>
auto with_checkpoint(FileSystem& fs, const std::string& path, const Use& use) {
  return with_checkpoints(
      fs, path, [&] { return std::vector{find_checkpoint(fs, path)}; },
      [&](const std::vector<std::string>& found) { return use(found.front()); });
}

// A checkpoint whose weights can be used.
struct SavedWeights {
  std::string checkpoint;  // its directory, verified
  RunConfig config;        // of training; data files resolved by located_data()
  int64_t step = 0;
  int64_t tokens = 0;  // trained on
  std::string hash;    // of its state.json, which seals its other files
  SourceTexts source;  // if the model was imported

  // For records: path, step, hash.
  [[nodiscard]] nlohmann::json json() const;
};
// Logs which states are dropped when only the weights are loaded.
void tell_what_is_left_out(const SavedWeights& saved);
// `path` is as for find_checkpoint().
SavedWeights find_saved_weights(FileSystem& fs, const std::string& path);
// Reads them from the directory of a checkpoint that has been verified.
SavedWeights saved_weights_at(FileSystem& fs, const std::string& checkpoint);

// Use of the weights. kGenerate: one token at a time, in the run's activation type and without FP8.
// kExport: a file for other programs, in the masters' type if its elements are self-contained, else
// BF16; kExportFp32: in FP32; kExportCodes: as stored, without a decoded copy of linear layers.
// kAsExported: the values of kExport, with FP32 arithmetic. kEvaluate: the loss as computed by the
// run.
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

// Returns make(allocator). Throws like require_memory(), before any memory is allocated.
template <class Make>
auto make_within_memory(Device& device, Allocator& allocator, const std::string& needs,
                        const Make& make) {
  PlanningAllocator plan(device.alignment());
  static_cast<void>(make(plan));
  require_memory(plan, device, needs);
  return make(allocator);
}

// Verifies the checkpoint and reads its weights, but not its optimizer states. `path` is as for
// find_checkpoint().
LoadedModel load_model(FileSystem& fs, const std::string& path, const DeviceConfig& device,
                       ModelUse use = ModelUse::kGenerate);

// Like load_model(), for the directory of a checkpoint that was just verified.
LoadedModel load_verified_model(FileSystem& fs, const std::string& checkpoint,
                                const DeviceConfig& device, ModelUse use);

}  // namespace mpt
