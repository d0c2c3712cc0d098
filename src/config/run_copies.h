// Copies of data files in the run's directory, so its models remain usable wherever it is moved.
//
//   tokenizer.model      the tokenizer of the data, if it has one; tokenizer.json or
//                        tokenizer.tiktoken if it has that format
//   data_manifest.json   the manifest next to the shards, if there is one
#pragma once

#include <optional>
#include <string>

#include "config/data_config.h"
#include "config/run_config.h"
#include "core/io/file_system.h"
#include "data/manifest.h"

namespace mpt {

inline constexpr const char* kRunManifest = "data_manifest.json";

struct FoundManifest {
  Manifest manifest;
  std::string path;
};
// The manifest next to the shards that the config names; missing shards are not an error.
std::optional<FoundManifest> manifest_of(const DataConfig& data);
// data.tokenizer, else the tokenizer that the manifest names; "" if neither exists.
std::string tokenizer_of(const DataConfig& data);

// Throws Error if the run of `checkpoint` was started with a different tokenizer than the config's.
void check_run_tokenizer(FileSystem& fs, const RunConfig& config, const std::string& checkpoint);
// Copies both files into the run's directory unless identical copies exist.
void keep_data_files(FileSystem& fs, const RunConfig& config);
// Removes copies left by an earlier start of the run that failed before its first step.
void remove_data_files(FileSystem& fs, const RunConfig& config);

// Returns config.data with relative file names resolved for the run of `checkpoint`. Names that do
// not exist relative to the working directory are tried relative to the directory in which the run
// was started, if its path reveals that ("/a" for "/a/runs/b" with output_dir = "runs"), and
// otherwise kept unchanged.
DataConfig located_data(const RunConfig& config, const std::string& checkpoint);

}  // namespace mpt
