#include "config/run_copies.h"

#include <filesystem>
#include <optional>
#include <string>

#include "config/run_paths.h"
#include "core/check.h"
#include "core/io/file_patterns.h"
#include "core/io/file_system.h"
#include "core/io/run_paths.h"
#include "text/tokenizer.h"

namespace mpt {
namespace {

namespace stdfs = std::filesystem;

void write_if_different(FileSystem& fs, const std::string& to, const std::string& content) {
  if (!fs.exists(to) || fs.read_file(to) != content)
    write_file_atomically(fs, to, bytes_of(content));
}

// "/a" for run = "/a/runs/b" and place = "runs/b"; "" if the run lies elsewhere.
std::string directory_before(stdfs::path run, stdfs::path place) {
  for (; !place.empty(); place = place.parent_path(), run = run.parent_path())
    if (run.filename() != place.filename()) return "";
  return run.string();
}

// The directory in which the run was started, if its path reveals it; else "".
std::string start_of_run(const RunConfig& config, const std::string& checkpoint) {
  const std::string run = run_of_checkpoint(checkpoint);
  const stdfs::path place = stdfs::path(run_directory(config)).lexically_normal();
  return run.empty() || place.is_absolute() ? "" : directory_before(run, place);
}

void locate(std::string& name, const std::string& start) {
  if (name.empty() || start.empty() || stdfs::path(name).is_absolute() || names_a_file(name))
    return;
  if (const std::string other = in_directory(start, name); names_a_file(other)) name = other;
}

}  // namespace

std::optional<FoundManifest> manifest_of(const DataConfig& data) {
  for (const std::string& pattern : data.all_files()) {
    const std::string path = in_directory(parent_directory(pattern), kManifestName);
    if (has_reachable_file(path)) return FoundManifest{Manifest::load(path), path};
  }
  return std::nullopt;
}

std::string tokenizer_of(const DataConfig& data) {
  if (!data.tokenizer.empty() && has_reachable_file(data.tokenizer)) return data.tokenizer;
  const std::optional<FoundManifest> found = manifest_of(data);
  if (!found) return "";
  const std::string beside =
      in_directory(parent_directory(found->path), found->manifest.tokenizer.file);
  return has_reachable_file(beside) ? beside : "";
}

void check_run_tokenizer(FileSystem& fs, const RunConfig& config, const std::string& checkpoint) {
  const std::string run = run_of_checkpoint(checkpoint), now = tokenizer_of(config.data);
  if (run.empty() || now.empty()) return;
  const std::string kept = tokenizer_in(run);
  if (kept.empty() || fs.read_file(kept) == read_tokenizer_file(now).bytes) return;
  throw error(
      "{}: cannot be resumed with the tokenizer {}: the run was started with a different one, {}. "
      "Restore data.tokenizer and the shards, or start a new run under another name",
      checkpoint, now, kept);
}

void keep_data_files(FileSystem& fs, const RunConfig& config) {
  const std::string directory = run_directory(config), tokenizer = tokenizer_of(config.data);
  if (!tokenizer.empty()) {
    const TokenizerFileContent file = read_tokenizer_file(tokenizer);
    write_if_different(fs, in_directory(directory, file.name()), file.bytes);
  }
  if (const auto found = manifest_of(config.data))
    write_if_different(fs, in_directory(directory, kRunManifest), fs.read_file(found->path));
}

void remove_data_files(FileSystem& fs, const RunConfig& config) {
  for (const char* const name : kTokenizerFiles)
    fs.remove_tree(in_directory(run_directory(config), name));
  fs.remove_tree(in_directory(run_directory(config), kRunManifest));
}

DataConfig located_data(const RunConfig& config, const std::string& checkpoint) {
  const std::string start = start_of_run(config, checkpoint);
  DataConfig data = config.data;
  for (CorpusConfig& corpus : data.train)
    for (std::string& name : corpus.files) locate(name, start);
  for (auto& [set, files] : data.validation)
    for (std::string& name : files) locate(name, start);
  locate(data.tokenizer, start);
  return data;
}

}  // namespace mpt
