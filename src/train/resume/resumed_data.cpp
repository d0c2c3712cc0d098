#include "train/resume/resumed_data.h"

#include <optional>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "train/resume/resume_check.h"

namespace mpt {
namespace {

constexpr const char* kTokens = "data_tokens";
constexpr const char* kOrder = "data_order";

// Of the one corpus without a name.
MixtureOrder unnamed_order() { return MixtureOrder({{0, {{"", kRowsPerCycle}}}}); }

// " of books"; "" for the corpus without a name.
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
                  checkpoint, kTokens, value.dump());
    tokens[name] = count.get<int64_t>();
  }
  return tokens;
}

// The present name of the one corpus of `before`, if that has none.
std::string name_now(const std::vector<CorpusConfig>& before, const RunConfig& config) {
  if (before.size() != 1 || !before.front().name.empty()) return "";
  for (const CorpusConfig& corpus : config.data.train)
    if (corpus.files == before.front().files) return corpus.name;
  return "";
}

// Gives the entry without a name one.
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

FormerData former_data(const TrainState& saved, const std::string& checkpoint,
                       const RunConfig& config) {
  const nlohmann::json order = extra_of(saved, kOrder);
  FormerData former{.tokens = saved_tokens(saved, checkpoint),
                    .order = order.is_null()
                                 ? unnamed_order()
                                 : MixtureOrder::parse(order, checkpoint + ": extra." + kOrder)};
  const std::optional<RunConfig> run = saved_config(saved);
  if (!run) return former;
  const std::string name = name_now(run->data.train, config);
  if (!name.empty() && !former.tokens.contains(name)) {
    give_name(former.tokens, name);
    former.order = with_name(former.order, name);
    former.corpora.insert(name);
    return former;
  }
  for (const CorpusConfig& corpus : run->data.train) former.corpora.insert(corpus.name);
  return former;
}

void check_corpora(const FormerData& former, const std::string& checkpoint,
                   const Mixture& training_data) {
  std::set<std::string> left = former.corpora;
  for (const Corpus& corpus : training_data.corpora()) {
    const auto found = former.tokens.find(corpus.name);
    const bool is_back = left.erase(corpus.name) == 0 && !former.corpora.empty();
    if (found == former.tokens.end()) {
      spdlog::warn("resume: {} is new, and read from its beginning", called(corpus.name));
      continue;
    }
    if (found->second != corpus.rows->tokens())
      throw error(
          "{}: cannot be resumed: it was trained on shards{} of {} tokens in total, data.train now "
          "names {}. The saved data position is valid only for the same shards",
          checkpoint, of_corpus(corpus.name), found->second, corpus.rows->tokens());
    if (is_back)
      spdlog::warn("resume: {} is read again, from where it was left", called(corpus.name));
  }
  for (const std::string& name : left) spdlog::warn("resume: {} is no longer read", called(name));
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

void add_data(TrainState& state, const Mixture& training_data,
              const std::map<std::string, int64_t>& former) {
  std::map<std::string, int64_t> tokens = former;
  for (const Corpus& corpus : training_data.corpora()) tokens[corpus.name] = corpus.rows->tokens();
  const bool unnamed = tokens.size() == 1 && tokens.begin()->first.empty();
  state.extra[kTokens] = unnamed ? nlohmann::json(tokens.begin()->second) : nlohmann::json(tokens);
  if (!(training_data.order() == unnamed_order()))
    state.extra[kOrder] = training_data.order().json();
}

}  // namespace mpt
