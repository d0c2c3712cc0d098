#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.h"
#include "core/json/json_parse.h"

namespace mpt {
namespace {

// Weights as unrounded rows per cycle.
std::map<std::string, double> exact_shares(const std::map<std::string, double>& weights) {
  double sum = 0;
  for (const auto& [name, weight] : weights) {
    if (!std::isfinite(weight) || weight < 0)
      throw error("the weight of {} is {}; expected a number from 0", name, weight);
    sum += weight;
  }
  if (!(sum > 0) || !std::isfinite(sum))
    throw error("the weights add up to {}; expected more than 0", sum);
  constexpr double kRounding = 1e-9;  // relative to the sum: 0.001 of 1 comes out slightly low
  std::map<std::string, double> exact;
  for (const auto& [name, weight] : weights) {
    exact[name] = weight / sum * kRowsPerCycle + (weight > 0 ? kRounding : 0);
    if (weight > 0 && exact[name] < 1)
      throw error(
          "the weight of {} is {} of {}, less than one row in {}; expected 0 or at least {}", name,
          weight, sum, kRowsPerCycle, sum / kRowsPerCycle);
  }
  return exact;
}

}  // namespace

CycleShares shares_of(const std::map<std::string, double>& weights) {
  CycleShares shares;
  std::vector<std::pair<double, std::string>> remainders;  // negated: the largest comes first
  int64_t left = kRowsPerCycle;
  for (const auto& [name, exact] : exact_shares(weights)) {
    left -= shares[name] = static_cast<int64_t>(exact);
    if (exact > 0) remainders.emplace_back(std::floor(exact) - exact, name);
  }
  std::sort(remainders.begin(), remainders.end());
  for (size_t i = 0; left > 0; ++i, --left) ++shares[remainders.at(i).second];
  return shares;
}

// Tijdeman's algorithm for the chairman assignment problem (Discrete Mathematics 32, 1980): among
// the corpora that can take row n without getting a full row ahead of their share, picks the one
// that must have it soonest. No corpus is ever off its share by more than 1 - 1/(2k - 2) rows.
MixtureOrder::Cycle MixtureOrder::cycle_of(const CycleShares& shares) {
  Cycle cycle;
  std::copy_if(shares.begin(), shares.end(), std::back_inserter(cycle.shares),
               [](const auto& share) { return share.second > 0; });
  const auto corpora = std::ssize(cycle.shares);
  const int64_t scale = std::max<int64_t>(2 * corpora - 2, 1);
  std::vector<int64_t> had(static_cast<size_t>(corpora));
  for (int64_t n = 1; n <= kRowsPerCycle; ++n) {
    // How far a corpus lags its share of n rows, scaled by `scale` and kRowsPerCycle.
    const auto behind = [&](size_t i) {
      return scale * (n * cycle.shares[i].second - kRowsPerCycle * had[i]);
    };
    // Rows until the corpus must have had one more, as a fraction with its share as denominator.
    const auto slack = [&](size_t i) { return (scale - 1) * kRowsPerCycle - behind(i); };
    size_t chosen = had.size();
    for (size_t i = 0; i < had.size(); ++i) {
      if (corpora > 1 && behind(i) < kRowsPerCycle) continue;
      if (chosen == had.size() ||
          slack(i) * cycle.shares[chosen].second < slack(chosen) * cycle.shares[i].second)
        chosen = i;
    }
    check(chosen < had.size(), "no corpus may have row {} of a cycle", n);
    cycle.corpus[size_t(n - 1)] = static_cast<uint16_t>(chosen);
    cycle.before[size_t(n - 1)] = static_cast<uint16_t>(had[chosen]++);
  }
  return cycle;
}

MixtureOrder::MixtureOrder(std::vector<MixtureSegment> segments) : segments_(std::move(segments)) {
  check(!segments_.empty() && segments_.front().first_row == 0,
        "the segments of an order begin at row 0");
  for (size_t s = 0; s < segments_.size(); ++s) {
    int64_t rows = 0;
    for (const auto& [name, share] : segments_[s].shares) {
      check(share >= 0 && share <= kRowsPerCycle, "{} rows of {}", share, name);
      rows += share;
    }
    check(rows == kRowsPerCycle, "{} rows in a cycle, expected {}", rows, kRowsPerCycle);
    cycles_.push_back(cycle_of(segments_[s].shares));
    if (s == 0) {
      had_.emplace_back();
      continue;
    }
    const int64_t length = segments_[s].first_row - segments_[s - 1].first_row;
    check(length > 0, "a segment begins at row {}, not after the one before",
          segments_[s].first_row);
    had_.push_back(had_.back());
    for (const auto& [name, share] : segments_[s - 1].shares)
      had_.back()[name] += rows_in_segment(s - 1, name, length);
  }
}

size_t MixtureOrder::segment_of(int64_t global_row) const {
  check(global_row >= 0, "global row {} is negative", global_row);
  const auto after = std::upper_bound(
      segments_.begin(), segments_.end(), global_row,
      [](int64_t row, const MixtureSegment& segment) { return row < segment.first_row; });
  return static_cast<size_t>(after - segments_.begin()) - 1;
}

int64_t MixtureOrder::rows_in_segment(size_t segment, const std::string& corpus,
                                      int64_t rows) const {
  const Cycle& cycle = cycles_[segment];
  const auto found = std::find_if(cycle.shares.begin(), cycle.shares.end(),
                                  [&](const auto& share) { return share.first == corpus; });
  if (found == cycle.shares.end()) return 0;
  const auto index = static_cast<uint16_t>(found - cycle.shares.begin());
  return rows / kRowsPerCycle * found->second +
         std::count(cycle.corpus.begin(), cycle.corpus.begin() + rows % kRowsPerCycle, index);
}

int64_t MixtureOrder::rows_before(size_t segment, const std::string& corpus) const {
  const auto found = had_[segment].find(corpus);
  return found == had_[segment].end() ? 0 : found->second;
}

MixtureOrder::Place MixtureOrder::place(int64_t global_row) const {
  const size_t segment = segment_of(global_row);
  const Cycle& cycle = cycles_[segment];
  const int64_t row = global_row - segments_[segment].first_row;
  const auto in_cycle = static_cast<size_t>(row % kRowsPerCycle);
  const auto& [name, share] = cycle.shares[cycle.corpus[in_cycle]];
  return {name, rows_before(segment, name) + row / kRowsPerCycle * share + cycle.before[in_cycle]};
}

int64_t MixtureOrder::rows_of(const std::string& corpus, int64_t rows) const {
  if (rows <= 0) return 0;
  const size_t segment = segment_of(rows - 1);
  return rows_before(segment, corpus) +
         rows_in_segment(segment, corpus, rows - segments_[segment].first_row);
}

MixtureOrder MixtureOrder::continuing(const MixtureOrder& former, int64_t rows) const {
  if (rows == 0) return *this;
  std::vector<MixtureSegment> segments(
      former.segments_.begin(),
      former.segments_.begin() + std::ptrdiff_t(former.segment_of(rows - 1)) + 1);
  const size_t now = segment_of(rows);
  if (segments_[now].first_row == rows || segments_[now].shares != segments.back().shares)
    segments.push_back({rows, segments_[now].shares});
  segments.insert(segments.end(), segments_.begin() + std::ptrdiff_t(now) + 1, segments_.end());
  return MixtureOrder(std::move(segments));
}

namespace {

constexpr const char* kFirstRow = "first_row";
constexpr const char* kShares = "rows_of_1000";

}  // namespace

nlohmann::json MixtureOrder::json() const {
  nlohmann::json list = nlohmann::json::array();
  for (const MixtureSegment& segment : segments_)
    list.push_back({{kFirstRow, segment.first_row}, {kShares, segment.shares}});
  return list;
}

MixtureOrder MixtureOrder::parse(const nlohmann::json& json, const std::string& place) try {
  std::vector<MixtureSegment> segments;
  for (const nlohmann::json& entry : json)
    segments.push_back({entry.at(kFirstRow).get<int64_t>(), entry.at(kShares).get<CycleShares>()});
  return MixtureOrder(std::move(segments));
} catch (const std::exception& problem) {
  throw error("{}: {} is not an order of rows: {}", place, json_text(json), problem.what());
}

// --- rows ----------------------------------------------------------------------------------------

Mixture::Mixture(std::vector<Corpus> corpora, MixtureOrder order)
    : corpora_(std::move(corpora)), order_(std::move(order)) {
  check(!corpora_.empty(), "a mixture of no corpora");
  for (const Corpus& corpus : corpora_)
    check(corpus.rows->seq_len() == seq_len() && corpus.rows->attention() == attention(),
          "{} has rows of {} tokens and attention within the {}, others of {} and within the {}",
          corpus.name, corpus.rows->seq_len(), name_of(corpus.rows->attention()), seq_len(),
          name_of(attention()));
}

const SequenceSource& Mixture::rows_of(const std::string& corpus) const {
  const auto found = std::find_if(corpora_.begin(), corpora_.end(),
                                  [&](const Corpus& one) { return one.name == corpus; });
  check(found != corpora_.end(), "a row of {}, which is not open", corpus);
  return *found->rows;
}

int64_t Mixture::valid_targets(int64_t global_row) const {
  const auto [corpus, row] = order_.place(global_row);
  return rows_of(corpus).valid_targets(row);
}

void Mixture::read(int64_t global_row, const RowBuffers& row) const {
  const auto [corpus, its_row] = order_.place(global_row);
  rows_of(corpus).read(its_row, row);
}

int64_t Mixture::tokens() const {
  int64_t tokens = 0;
  for (const Corpus& corpus : corpora_) tokens += corpus.rows->tokens();
  return tokens;
}

double Mixture::epochs(const Corpus& corpus, int64_t rows) const {
  return double(order_.rows_of(corpus.name, rows)) / double(corpus.rows->sequences());
}

std::shared_ptr<const Mixture> Mixture::in_order(MixtureOrder order) const {
  return std::make_shared<Mixture>(corpora_, std::move(order));
}

}  // namespace mpt
