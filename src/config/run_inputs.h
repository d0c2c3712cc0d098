// Opens what a run's config names: device, output paths, data; and the plan of a step's rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/io/file_system.h"
#include "data/dataloader.h"
#include "data/manifest.h"
#include "data/mixture.h"
#include "data/sequence_source.h"
#include "data/tokenizer.h"
#include "device/device.h"
#include "model/linears.h"

namespace mpt {

// The backend the config selects.
Backend backend_of(const DeviceConfig& config);
// Throws Error if the run, in any of its phases, computes in a format that the backend lacks.
void require_compute(const RunConfig& config, Backend backend);
// The device the config selects.
std::unique_ptr<Device> make_device(const DeviceConfig& config);
// Why this machine has no such device; empty if it has one.
std::string why_unavailable(const DeviceConfig& config);
// The same device for planning; a device that only counts memory if this machine has none.
std::unique_ptr<Device> make_planning_device(const DeviceConfig& config);
// A GPU that only counts memory, whatever device the config selects; null if the program was built
// without CUDA. Demands no cuDNN, which this machine need not have.
std::unique_ptr<Device> make_planning_gpu(const DeviceConfig& config);

// What of the FP8 codes of weights the backend keeps in memory.
WeightCodes weight_codes_of(const DeviceConfig& config, Backend backend);

// runs/<name> and the paths in it.
std::string run_directory(const RunConfig& config);
std::string checkpoint_directory(const RunConfig& config);
std::string metrics_path(const RunConfig& config);
std::string samples_path(const RunConfig& config);
// Whether metrics.jsonl has any line (a step or an event).
bool has_metrics(FileSystem& fs, const RunConfig& config);

// nullopt if the config names no tokenizer. Throws Error if it has more pieces than the model's
// vocabulary.
std::optional<Tokenizer> open_tokenizer(const RunConfig& config);
// The step after which a phase's weights hold; at least 0, below `steps`.
int64_t first_step_of(const MixturePhaseConfig& phase, int64_t steps);
// The order in which the config mixes its corpora, from the first row of the run on.
MixtureOrder mixture_order(const RunConfig& config);
// Tokens of a corpus without a manifest that are compared with the vocabulary when it is opened: a
// tenth of a second's reading.
inline constexpr int64_t kScannedTokens = 100'000'000;
// All corpora, in that order. Throws Error if the shards, the tokenizer and the model's vocabulary
// do not match.
std::shared_ptr<const Mixture> open_training_data(const RunConfig& config,
                                                  int64_t scanned_tokens = kScannedTokens);

struct ValidationSet {
  std::string name;  // "" where there is only one
  std::shared_ptr<const SequenceSource> rows;
};
// Empty if the config names no validation data. Never shuffled.
std::vector<ValidationSet> open_validation_data(const RunConfig& config);
// "2 shards are in data.train and in data.validation: ..."; "" if none is.
std::string text_of_shards_in_both(const DataConfig& data);
// Of all sets.
int64_t tokens_of(const std::vector<ValidationSet>& sets);

// Copies of data files in the run's directory, so that its models can be used wherever it is moved.
//
//   tokenizer.model      the tokenizer of the data, if it has one; tokenizer.json or
//                        tokenizer.tiktoken if it is one of these
//   data_manifest.json   the manifest beside the shards, if there is one

inline constexpr const char* kRunManifest = "data_manifest.json";

struct FoundManifest {
  Manifest manifest;
  std::string path;
};
// The manifest beside the shards that the config names; missing shards are not an error.
std::optional<FoundManifest> manifest_of(const DataConfig& data);
// data.tokenizer, else the tokenizer that the manifest names; "" if neither exists.
std::string tokenizer_of(const DataConfig& data);

// Throws Error if the run of `checkpoint` was started with another tokenizer than the config's.
void check_run_tokenizer(FileSystem& fs, const RunConfig& config, const std::string& checkpoint);
// Copies both files into the run's directory unless identical copies exist.
void keep_data_files(FileSystem& fs, const RunConfig& config);
// Removes copies left by an earlier start of the run that failed before its first step.
void remove_data_files(FileSystem& fs, const RunConfig& config);

// config.data with relative file names resolved for the run of `checkpoint`. Names that do not
// exist from the working directory are tried from the directory that the run was started in, if its
// path reveals that ("/a" for "/a/runs/b" with output_dir = "runs"), and kept as they are
// otherwise.
DataConfig located_data(const RunConfig& config, const std::string& checkpoint);

// How ranks share a step: each has its rows, cut into micro-batches. Some ranks may have fewer of
// them. As long as no rows of a micro-batch are chosen (batch.micro_batch_rows=0), all of a rank's.

struct BatchPlan {
  RowSlice own{};                  // this rank's rows of the step
  int64_t own_micro_batches = 0;   // non-empty micro-batches of this rank
  int64_t micro_batch_rows = 0;    // rows of a full micro-batch
  int64_t most_rows = 0;           // rows of the rank with most
  int64_t most_micro_batches = 0;  // micro-batches of that rank; every rank joins in as many
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
