// The directory in which a run of `tokenize` keeps its shards until all are complete, and how far
// it is in it, so that the same run goes on after an interruption.
//
// `.mpretrain_unfinished/progress.json` is replaced, atomically, after finished shards. It holds
// what the run was asked for (options, tokenizer, and each input's name, size and time of change),
// the place in the input with a hash of the text read of its last file, and what is finished of
// each split. The shard that is not finished is beside it, as far as it was then.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/atomic_output.h"
#include "core/io/file_system.h"
#include "data/corpus/corpus.h"
#include "data/corpus/split_writer.h"

namespace mpt {

inline constexpr const char* kTrainSplit = "train";
inline constexpr const char* kValidationSplit = "val";

struct TokenizeProgress {
  CorpusPosition position{};
  std::map<std::string, SplitProgress> splits{};
};

// Names, sizes and times of change of the files.
nlohmann::json describe_inputs(const std::vector<std::string>& files);

// Manifest, shards and indices in an output directory.
std::vector<std::string> earlier_output(const std::string& directory);

class UnfinishedRun {
 public:
  // Finds what a run left that was asked for `run`, and removes what can't be gone on with. Throws
  // Error if it was asked for something else, unless that may be overwritten.
  UnfinishedRun(FileSystem& fs, const std::string& output, nlohmann::json run, Overwrite overwrite);
  // Removes the directory where nothing was saved.
  ~UnfinishedRun();
  UnfinishedRun(const UnfinishedRun&) = delete;
  UnfinishedRun& operator=(const UnfinishedRun&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  // Of the run that was found; nothing if there is none to go on with.
  [[nodiscard]] const std::optional<TokenizeProgress>& found() const { return found_; }
  void save(const TokenizeProgress& progress);
  [[nodiscard]] bool saved() const { return saved_; }
  // What was saved is of no use: the directory is removed after all.
  void discard() { saved_ = false; }
  // Replaces an earlier run's shards. The earlier manifest is removed first: without it the rest
  // counts as incomplete.
  void publish();

 private:
  [[nodiscard]] std::string progress_path() const;
  // How the run that was found differs; empty if it does not.
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
