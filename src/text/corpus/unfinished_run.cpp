#include "text/corpus/unfinished_run.h"

#include <filesystem>
#include <utility>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "core/json/json_parse.h"
#include "core/text/counted.h"
#include "core/text/library_message.h"
#include "text/corpus/raw_input.h"
#include "text/tokenizer.h"

namespace mpt {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kDirectory = ".mpretrain_unfinished";
constexpr const char* kProgressName = "progress.json";
constexpr const char* kFormat = "mpretrain unfinished tokens 1";

bool is_own_file(const std::string& file) {
  return file == kManifestName || is_split_file(file, kTrainSplit) ||
         is_split_file(file, kValidationSplit);
}

json json_of(const CorpusPosition& position) {
  const CorpusStats& stats = position.stats;
  return {{"file", position.file},
          {"documents_of_file", position.documents},
          {"hash", position.hash},
          {"documents", stats.documents},
          {"text_bytes", stats.text_bytes},
          {"empty", stats.empty},
          {"bad", stats.bad},
          {"cuts", stats.cuts}};
}

CorpusPosition position_from(const json& value) {
  return {.file = value.at("file"),
          .documents = value.at("documents_of_file"),
          .hash = value.at("hash"),
          .stats = {.documents = value.at("documents"),
                    .text_bytes = value.at("text_bytes"),
                    .empty = value.at("empty"),
                    .bad = value.at("bad"),
                    .cuts = value.at("cuts")}};
}

json json_of(const SplitProgress& progress) {
  const ManifestSplit& split = progress.split;
  json shards = json::array();
  for (const ManifestShard& shard : split.shards)
    shards.push_back({{"file", shard.file}, {"tokens", shard.tokens}, {"hash", shard.hash}});
  json value{{"documents", split.documents},
             {"tokens", split.tokens},
             {"text_bytes", split.text_bytes},
             {"shards", shards},
             {"counts", progress.counts}};
  if (progress.open)
    value["open"] = {{"tokens", progress.open->tokens}, {"hash", progress.open->hash}};
  return value;
}

SplitProgress split_from(const json& value) {
  SplitProgress progress{.split = {.documents = value.at("documents"),
                                   .tokens = value.at("tokens"),
                                   .text_bytes = value.at("text_bytes")},
                         .counts = value.at("counts").get<std::vector<int64_t>>()};
  for (const json& shard : value.at("shards"))
    progress.split.shards.push_back(
        {.file = shard.at("file"), .tokens = shard.at("tokens"), .hash = shard.at("hash")});
  if (value.contains("open"))
    progress.open = {.tokens = value.at("open").at("tokens"), .hash = value.at("open").at("hash")};
  return progress;
}

TokenizeProgress progress_from(const json& value) {
  TokenizeProgress progress{.position = position_from(value.at("position"))};
  for (const char* const name : {kTrainSplit, kValidationSplit})
    progress.splits[name] = split_from(value.at("splits").at(name));
  return progress;
}

// Describes the first difference between two lists of inputs.
std::string different_input(const json& before, const json& now) {
  if (before.size() != now.size())
    return fmt::format("{}, now {}", counted(std::ssize(before), "input"), now.size());
  for (size_t i = 0; i < now.size(); ++i)
    if (before[i].at("file") != now[i].at("file"))
      return fmt::format("input {}, now {}", json_text(before[i].at("file")),
                         json_text(now[i].at("file")));
    else if (before[i] != now[i])
      return fmt::format("input {} was modified since", json_text(now[i].at("file")));
  return "";
}

}  // namespace

json describe_inputs(const std::vector<std::string>& files) {
  json inputs = json::array();
  for (const std::string& file : files) {
    json input{{"file", file}};
    if (file != kStandardInput) {
      input["bytes"] = fs::file_size(file);
      input["changed"] = fs::last_write_time(file).time_since_epoch().count();
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

std::vector<std::string> earlier_output(const std::string& directory) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(directory))
    if (is_own_file(entry.path().filename().string())) found.push_back(entry.path().string());
  return found;
}

UnfinishedRun::UnfinishedRun(FileSystem& fs, const std::string& output, json run,
                             Overwrite overwrite)
    : fs_(fs),
      output_(output),
      path_(in_directory(output, kDirectory)),
      run_(json::parse(json_text(run))) {
  if (fs_.exists(progress_path())) find(overwrite);
  saved_ = found_.has_value();
  if (!found_) fs_.remove_tree(path_);
  fs_.create_directories(path_);
}

UnfinishedRun::~UnfinishedRun() {
  if (!saved_) remove_quietly(fs_, path_);
}

std::string UnfinishedRun::progress_path() const { return in_directory(path_, kProgressName); }

std::string UnfinishedRun::difference(const json& found) const {
  const json& before = found.at("run");
  // If there were no bad documents, how to treat them made no difference.
  const bool bad_met = found.at("position").at("bad") > 0;
  for (const auto& [key, now] : run_.items()) {
    const json then = before.value(key, json());
    if (then == now || (key == "on_bad_document" && !bad_met)) continue;
    if (key == "inputs") return different_input(then, now);
    return fmt::format("{} {}, now {}", key, json_text(then), json_text(now));
  }
  return "";
}

void UnfinishedRun::find(Overwrite overwrite) try {
  const json found = parse_plain_json(fs_.read_file(progress_path()), progress_path());
  if (found.at("format") != kFormat)
    throw error("{}: has format {}; expected {}; remove the directory to start over",
                progress_path(), json_text(found.at("format")), kFormat);
  const std::string differs = difference(found);
  if (differs.empty()) {
    found_ = progress_from(found);
  } else if (overwrite == Overwrite::kYes) {
    spdlog::warn("{}: an interrupted run with other inputs or options ({}) is given up", path_,
                 differs);
  } else {
    throw error(
        "{}: an interrupted run had other inputs or options ({}); continue it with the same ones, "
        "or give it up with --overwrite",
        path_, differs);
  }
} catch (const json::exception& failure) {
  throw error("{}: {}; remove the directory to start over", progress_path(),
              library_message(failure.what()));
}

void UnfinishedRun::save(const TokenizeProgress& progress) {
  json splits = json::object();
  for (const auto& [name, split] : progress.splits) splits[name] = json_of(split);
  const json content{{"format", kFormat},
                     {"run", run_},
                     {"position", json_of(progress.position)},
                     {"splits", splits}};
  write_file_atomically(fs_, progress_path(), bytes_of(json_text(content) + "\n"));
  saved_ = true;
}

void UnfinishedRun::publish() {
  const std::string manifest = in_directory(output_, kManifestName);
  // From here on there is nothing to resume.
  if (fs_.exists(progress_path())) fs_.remove_file(progress_path());
  saved_ = false;
  if (fs_.exists(manifest)) fs_.remove_file(manifest);
  for (const std::string& file : earlier_output(output_)) fs_.remove_file(file);
  for (const std::string& name : fs_.list_directory(path_))
    if (is_own_file(name) && name != kManifestName) move_to_output(name);
  for (const char* const name : kTokenizerFiles)
    if (fs_.exists(in_directory(path_, name)))
      move_to_output(name);
    else if (const std::string other = in_directory(output_, name); fs_.exists(other))
      fs_.remove_file(other);
  move_to_output(kManifestName);
  fs_.sync_directory(output_);
}

void UnfinishedRun::move_to_output(const std::string& name) {
  fs_.rename(in_directory(path_, name), in_directory(output_, name));
}

}  // namespace mpt
