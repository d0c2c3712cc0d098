// What a run keeps of its data in its own directory, so that its models can be used wherever it lies.
//
//   tokenizer.model      the tokenizer of the data, if it has one
//   data_manifest.json   the manifest beside the shards, if there is one
#pragma once

#include <optional>
#include <string>

#include "core/file_system.h"
#include "data/manifest.h"
#include "train/run_config.h"

namespace mpt {

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

}  // namespace mpt
