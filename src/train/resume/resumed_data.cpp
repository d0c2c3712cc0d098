#include "train/resume/resumed_data.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "config/run_copies.h"
#include "core/check.h"
#include "core/io/file_system.h"
#include "core/io/run_paths.h"
#include "core/json/json_parse.h"
#include "core/text/counted.h"
#include "data/manifest.h"
#include "train/resume/resume_check.h"

namespace mpt {
namespace {

constexpr const char* kTokens = "data_tokens";
constexpr const char* kOrder = "data_order";
constexpr const char* kShards = "data_shards";
constexpr const char* kValidation = "validation_shards";

// Returns " of books"; "" for the corpus without a name.
std::string of_corpus(const std::string& name) { return name.empty() ? "" : " of " + name; }

std::string called(const std::string& name) {
  return name.empty() ? "the corpus without a name" : "the corpus " + name;
}

std::string text_of(const CycleShares& shares) {
  std::string text;
  for (const auto& [name, rows] : shares)
    text += fmt::format("{}{:.1f} % {}", text.empty() ? "" : ", ",
                        100.0 * double(rows) / double(kRowsPerCycle), name);
  return text;
}

std::map<std::string, int64_t> saved_tokens(const TrainState& saved,
                                            const std::string& checkpoint) {
  const nlohmann::json value = extra_of(saved, kTokens);
  if (!value.is_object()) return {{"", saved_count(saved, checkpoint, kTokens)}};
  std::map<std::string, int64_t> tokens;
  for (const auto& [name, count] : value.items()) {
    if (!count.is_number_integer())
      throw error("{}: cannot be resumed: extra.{} of its state is {}; expected whole numbers",
                  checkpoint, kTokens, json_text(value));
    tokens[name] = count.get<int64_t>();
  }
  return tokens;
}

nlohmann::json json_of(const DataContents& contents) {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [name, shards] : contents)
    for (const ShardContent& shard : shards) {
      all[name].push_back(
          {{"file", shard.file}, {"tokens", shard.tokens}, {"sample", shard.sample}});
      if (!shard.hash.empty()) all[name].back()["hash"] = shard.hash;
    }
  return all;
}

// Returns nothing if the version that saved did not have the key.
DataContents saved_contents(const TrainState& saved, const std::string& checkpoint,
                            const char* key) {
  DataContents contents;
  const nlohmann::json value = extra_of(saved, key);
  if (value.is_null()) return contents;
  try {
    for (const auto& [name, shards] : value.get<nlohmann::json::object_t>())
      for (const nlohmann::json& shard : shards.get<nlohmann::json::array_t>())
        contents[name].push_back({.file = shard.at("file").get<std::string>(),
                                  .tokens = shard.at("tokens").get<int64_t>(),
                                  .sample = shard.at("sample").get<std::string>(),
                                  .hash = shard.value("hash", "")});
  } catch (const nlohmann::json::exception&) {
    throw error(
        "{}: cannot be resumed: extra.{} of its state does not list file, tokens and sample of "
        "shards by the name of their corpus",
        checkpoint, key);
  }
  return contents;
}

// Returns the present name of the only corpus of `before`, if that has none.
std::string name_now(const std::vector<CorpusConfig>& before, const RunConfig& config) {
  if (before.size() != 1 || !before.front().name.empty()) return "";
  for (const CorpusConfig& corpus : config.data.train)
    if (corpus.files == before.front().files) return corpus.name;
  return "";
}

// Names the entry that has no name.
template <class Value>
void give_name(std::map<std::string, Value>& of_corpora, const std::string& name) {
  auto entry = of_corpora.extract("");
  if (entry.empty()) return;
  entry.key() = name;
  of_corpora.insert(std::move(entry));
}

MixtureOrder with_name(const MixtureOrder& order, const std::string& name) {
  std::vector<MixtureSegment> segments = order.segments();
  for (MixtureSegment& segment : segments) give_name(segment.shares, name);
  return MixtureOrder(std::move(segments));
}

}  // namespace

MixtureOrder unnamed_order() { return MixtureOrder({{0, {{"", kRowsPerCycle}}}}); }

FormerData former_data(const TrainState& saved, const std::string& checkpoint,
                       const RunConfig& config) {
  const nlohmann::json order = extra_of(saved, kOrder);
  FormerData former{.tokens = saved_tokens(saved, checkpoint),
                    .shards = saved_contents(saved, checkpoint, kShards),
                    .validation = saved_contents(saved, checkpoint, kValidation),
                    .order = order.is_null()
                                 ? unnamed_order()
                                 : MixtureOrder::parse(order, checkpoint + ": extra." + kOrder)};
  const std::optional<RunConfig> run = saved_config(saved);
  if (!run) return former;
  const std::string name = name_now(run->data.train, config);
  if (!name.empty() && !former.tokens.contains(name)) {
    give_name(former.tokens, name);
    give_name(former.shards, name);
    former.order = with_name(former.order, name);
    former.corpora.insert(name);
    return former;
  }
  for (const CorpusConfig& corpus : run->data.train) former.corpora.insert(corpus.name);
  return former;
}

DataContents contents_of(const Mixture& training_data) {
  DataContents contents;
  for (const Corpus& corpus : training_data.corpora())
    contents[corpus.name] = corpus.rows->contents();
  return contents;
}

DataContents contents_of(const std::vector<ValidationSet>& sets) {
  DataContents contents;
  for (const ValidationSet& set : sets) contents[set.name] = set.rows->contents();
  return contents;
}

namespace {

using Shards = std::vector<ShardContent>;

// "a.bin of 10 tokens"
std::string text_of(const ShardContent& shard) {
  return fmt::format("{} of {} tokens", shard.file, shard.tokens);
}

// Returns "shard 2 was b.bin of 10 tokens and is a.bin of 10 tokens"; "" if the tokens are the
// same.
std::string difference_of(const Shards& before, const Shards& now) {
  for (size_t i = 0; i < std::min(before.size(), now.size()); ++i) {
    if (now[i].same_as(before[i])) continue;
    const std::string was = text_of(before[i]), is = text_of(now[i]);
    return was == is ? fmt::format("shard {}, {}, has other tokens now", i + 1, is)
                     : fmt::format("shard {} was {} and is {}", i + 1, was, is);
  }
  if (before.size() == now.size()) return "";
  return fmt::format("there were {} and are {}", counted(std::ssize(before), "shard"), now.size());
}

int64_t tokens_of(const Shards& shards) {
  int64_t tokens = 0;
  for (const ShardContent& shard : shards) tokens += shard.tokens;
  return tokens;
}

// Returns the manifest of the checkpoint's run, which is that of a single corpus.
std::optional<Manifest> kept_manifest(const std::string& checkpoint) {
  const std::string run = run_of_checkpoint(checkpoint);
  const std::string path = run.empty() ? "" : in_directory(run, kRunManifest);
  if (path.empty() || !posix_file_system().exists(path)) return std::nullopt;
  return Manifest::load(path);
}

// Like difference_of(), but for a checkpoint that does not list its shards.
std::string difference_by_manifest(const std::string& checkpoint, const Shards& now) {
  const std::optional<Manifest> manifest = kept_manifest(checkpoint);
  bool all_known = manifest.has_value();
  for (size_t i = 0; manifest && i < now.size(); ++i) {
    const ManifestShard* const listed = manifest->find_shard(now[i].file);
    all_known &= listed != nullptr && !now[i].hash.empty();
    if (listed != nullptr && !now[i].hash.empty() && listed->hash != now[i].hash)
      return fmt::format("shard {}, {}, has other tokens now", i + 1, text_of(now[i]));
  }
  if (!all_known)
    spdlog::warn(
        "resume: {} does not say which shards it was trained on; only their number of tokens can "
        "be compared",
        checkpoint);
  return "";
}

std::string difference_in(const std::string& corpus, const FormerData& former,
                          const std::string& checkpoint, const Shards& now) {
  if (const auto found = former.shards.find(corpus); found != former.shards.end())
    return difference_of(found->second, now);
  const int64_t tokens = former.tokens.at(corpus);
  if (tokens != tokens_of(now))
    return fmt::format("there were {} tokens in total and are {}", tokens, tokens_of(now));
  return former.tokens.size() == 1 ? difference_by_manifest(checkpoint, now) : "";
}

void refuse_or_accept(const std::string& difference, const std::string& corpus,
                      const std::string& checkpoint, const RunConfig& config) {
  if (difference.empty()) return;
  const std::string what =
      fmt::format("data.train: the shards{} are not those it was trained on", of_corpus(corpus));
  if (config.data.changed_shards == ChangedShards::kAccept)
    return spdlog::warn("resume: {}: {}: {}; going on with them (data.changed_shards)", checkpoint,
                        what, difference);
  throw error(
      "{}: cannot be resumed: {}: {}. The saved data position is valid only for the same shards in "
      "the same order: restore them, start a new run under another name, or continue with these at "
      "the same row by --set data.changed_shards=accept",
      checkpoint, what, difference);
}

void warn_of_other_validation(const DataContents& before, const DataContents& now) {
  for (const auto& [set, shards] : now) {
    const auto found = before.find(set);
    const std::string difference =
        found == before.end() ? "" : difference_of(found->second, shards);
    if (!difference.empty())
      spdlog::warn(
          "resume: the validation data{} are others: {}; losses are not comparable with those "
          "before",
          of_corpus(set), difference);
  }
}

}  // namespace

void check_corpora(const FormerData& former, const std::string& checkpoint, const PresentData& now,
                   const RunConfig& config) {
  std::set<std::string> left = former.corpora;
  for (const Corpus& corpus : now.training.corpora()) {
    const bool is_back = left.erase(corpus.name) == 0 && !former.corpora.empty();
    if (!former.tokens.contains(corpus.name)) {
      spdlog::warn("resume: {} is new, and read from its beginning", called(corpus.name));
      continue;
    }
    refuse_or_accept(difference_in(corpus.name, former, checkpoint, now.shards.at(corpus.name)),
                     corpus.name, checkpoint, config);
    if (is_back)
      spdlog::warn("resume: {} is read again, from where it was left", called(corpus.name));
  }
  for (const std::string& name : left) spdlog::warn("resume: {} is no longer read", called(name));
  warn_of_other_validation(former.validation, now.validation);
}

std::shared_ptr<const Mixture> continued_data(const FormerData& former, int64_t rows,
                                              const Mixture& training_data) {
  MixtureOrder order = training_data.order().continuing(former.order, rows);
  if (!(order == former.order))
    for (const MixtureSegment& segment : order.segments())
      if (segment.first_row >= rows)
        spdlog::warn("resume: rows from {} on: {}", segment.first_row, text_of(segment.shares));
  return training_data.in_order(std::move(order));
}

void add_data(TrainState& state, const PresentData& now, const FormerData& former) {
  std::map<std::string, int64_t> tokens = former.tokens;
  DataContents shards = former.shards;
  for (const auto& [name, present] : now.shards) {
    tokens[name] = tokens_of(present);
    shards[name] = present;
  }
  const bool unnamed = tokens.size() == 1 && tokens.begin()->first.empty();
  state.extra[kTokens] = unnamed ? nlohmann::json(tokens.begin()->second) : nlohmann::json(tokens);
  state.extra[kShards] = json_of(shards);
  if (!now.validation.empty()) state.extra[kValidation] = json_of(now.validation);
  if (!(now.training.order() == unnamed_order())) state.extra[kOrder] = now.training.order().json();
}

}  // namespace mpt
