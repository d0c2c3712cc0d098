// What a run's config names: the device, the places it writes to, its data, and the rows of a step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "core/io/file_system.h"
#include "data/dataloader.h"
#include "data/manifest.h"
#include "data/sequence_source.h"
#include "data/tokenizer.h"
#include "device/device.h"

namespace mpt {

// The backend that the config names.
Backend backend_of(const DeviceConfig& config);
// The device that the config names.
std::unique_ptr<Device> make_device(const DeviceConfig& config);
// Why this machine has no such device; empty where it has.
std::string why_unavailable(const DeviceConfig& config);
// One to plan for: the same, or where this machine has no such device one that only counts.
std::unique_ptr<Device> make_planning_device(const DeviceConfig& config);

// runs/<name> and what lies in it.
std::string run_directory(const RunConfig& config);
std::string checkpoint_directory(const RunConfig& config);
std::string metrics_path(const RunConfig& config);
// Whether there is a line in metrics.jsonl, of a step or an event.
bool has_metrics(FileSystem& fs, const RunConfig& config);

// None if the config names none. Throws Error if it has more pieces than the model.
std::optional<Tokenizer> open_tokenizer(const RunConfig& config);
// Throws Error if the shards, the tokenizer and the model's vocabulary do not go together.
std::shared_ptr<const SequenceSource> open_training_data(const RunConfig& config);
// Null if the config names no validation data. Never shuffled.
std::shared_ptr<const SequenceSource> open_validation_data(const RunConfig& config);

// What a run keeps of its data in its own directory, so that its models can be used wherever it lies.
//
//   tokenizer.model      the tokenizer of the data, if it has one
//   data_manifest.json   the manifest beside the shards, if there is one

inline constexpr const char* kRunTokenizer = "tokenizer.model";
inline constexpr const char* kRunManifest = "data_manifest.json";

// `directory`, with or without a slash behind it, and a name in it.
std::string in_directory(const std::string& directory, const std::string& name);

struct FoundManifest {
  Manifest manifest;
  std::string path;
};
// The one beside the shards that the config names; shards that are gone are no error.
std::optional<FoundManifest> manifest_of(const DataConfig& data);
// data.tokenizer, else what the manifest names; "" if neither is there.
std::string tokenizer_of(const DataConfig& data);

// Throws Error if the run of `checkpoint` was started with another tokenizer than the config's.
void check_run_tokenizer(FileSystem& fs, const RunConfig& config, const std::string& checkpoint);
// Writes both files into the run's directory where they are not there or not the same.
void keep_data_files(FileSystem& fs, const RunConfig& config);
// Removes what a start that came no further has left.
void remove_data_files(FileSystem& fs, const RunConfig& config);

// The directory of the run that a checkpoint belongs to: "/a/runs/b" of
// "/a/runs/b/checkpoints/step_00000001".
// "" for a checkpoint that does not lie in a run.
std::string run_of_checkpoint(const std::string& checkpoint);

// `data` as the run of `checkpoint` means it: relative names of files that are not to be found from the
// working directory are completed by the directory that the run was started in, where its place tells that
// ("/a" of "/a/runs/b" with output_dir = "runs") and the files are there.
DataConfig located_data(const RunConfig& config, const std::string& checkpoint);

// A step as ranks do it: each its rows, in micro-batches of at most so many, of which some ranks may have
// fewer.

struct BatchPlan {
  RowSlice own{};                  // rows of the step that the rank works on
  int64_t own_micro_batches = 0;   // that it has rows of
  int64_t micro_batch_rows = 0;    // of a full one
  int64_t most_rows = 0;           // of the rank that has most
  int64_t most_micro_batches = 0;  // of that rank; all take part in as many
};

inline BatchPlan batch_plan(const BatchConfig& batch, int64_t rank, int64_t ranks) {
  const int64_t rows = batch.rows_per_step(), most = (rows + ranks - 1) / ranks;
  const int64_t full = batch.micro_batch_rows > 0 ? std::min(batch.micro_batch_rows, most) : most;
  const RowSlice own = slice_of(rows, rank, ranks);
  return {.own = own,
          .own_micro_batches = (own.rows + full - 1) / full,
          .micro_batch_rows = full,
          .most_rows = most,
          .most_micro_batches = (most + full - 1) / full};
}

}  // namespace mpt
