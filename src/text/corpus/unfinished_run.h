// Directory that holds the shards of a `tokenize` run until all are complete, together with its
// progress, so that the same run can resume after an interruption.
//
// `.mpretrain_unfinished/progress.json` is replaced atomically after finished shards. It records
// what the run was asked for (options, tokenizer, and each input's name, size and modification
// time), the input position with a hash of the text read from the last file, and the finished part
// of each split. The unfinished shard is stored next to it, as of that save.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/file_system.h"
#include "core/io/output_directory.h"
#include "text/corpus/corpus.h"
#include "text/corpus/split_writer.h"

namespace mpt {

inline constexpr const char* kTrainSplit = "train";
inline constexpr const char* kValidationSplit = "val";

struct TokenizeProgress {
  CorpusPosition position{};
  std::map<std::string, SplitProgress> splits{};
};

// Names, sizes and modification times of the files.
nlohmann::json describe_inputs(const std::vector<std::string>& files);

// Manifest, shards and indices in an output directory.
std::vector<std::string> earlier_output(const std::string& directory);

class UnfinishedRun {
 public:
  // Looks for an interrupted run with the same `run`, and removes leftovers that cannot be resumed.
  // Throws Error if one with a different `run` exists, unless it may be overwritten.
  UnfinishedRun(FileSystem& fs, const std::string& output, nlohmann::json run, Overwrite overwrite);
  // Removes the directory if nothing was saved.
  ~UnfinishedRun();
  UnfinishedRun(const UnfinishedRun&) = delete;
  UnfinishedRun& operator=(const UnfinishedRun&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  // Progress of the run found; nullopt if there is none to resume.
  [[nodiscard]] const std::optional<TokenizeProgress>& found() const { return found_; }
  void save(const TokenizeProgress& progress);
  [[nodiscard]] bool saved() const { return saved_; }
  // Drops the saved state, so that the directory is removed after all.
  void discard() { saved_ = false; }
  // Replaces an earlier run's shards. Removes the earlier manifest first: without it the rest
  // counts as incomplete.
  void publish();

 private:
  [[nodiscard]] std::string progress_path() const;
  // How the run found differs from this one; "" if it does not.
  [[nodiscard]] std::string difference(const nlohmann::json& found) const;
  void find(Overwrite overwrite);
  void move_to_output(const std::string& name);

  FileSystem& fs_;
  std::string output_;
  std::string path_;
  nlohmann::json run_;
  std::optional<TokenizeProgress> found_;
  bool saved_ = false;
};

}  // namespace mpt
