// Interleaves the rows of several corpora by weight into the row order of a training run.
//
// Every cycle of 1,000 rows holds a whole number of rows of each corpus, spread as evenly as whole
// numbers allow: after any n rows of a cycle, a corpus is less than one row off its share of n. All
// cycles of a segment are alike, so any 1,000 consecutive rows hold exactly those numbers. Row k of
// a corpus is sequence k of its SequenceSource, so each corpus has its own epochs and its own
// shuffling.
//
// The mapping from a global row to a corpus and row depends only on the order's segments, not on
// the batch size, ranks or threads.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/sequence_source.h"

namespace mpt {

inline constexpr int64_t kRowsPerCycle = 1000;

// Rows per cycle for each corpus, keyed by name; they sum to kRowsPerCycle.
using CycleShares = std::map<std::string, int64_t>;

// Rounds the weights, which need not sum to 1, to the nearest shares (largest remainder; ties go to
// the first name). Throws Error if a weight is negative, not finite, or nonzero but less than one
// row per cycle, or if all are 0.
CycleShares shares_of(const std::map<std::string, double>& weights);

// Shares that apply from a global row on.
struct MixtureSegment {
  int64_t first_row;
  CycleShares shares;
  bool operator==(const MixtureSegment&) const = default;
};

class MixtureOrder {
 public:
  // A row of a corpus.
  struct Place {
    const std::string& corpus;
    int64_t row;
  };

  // The first segment must start at row 0, and each later one after its predecessor.
  explicit MixtureOrder(std::vector<MixtureSegment> segments);

  [[nodiscard]] Place place(int64_t global_row) const;
  // Rows of a corpus among the first `rows` global rows.
  [[nodiscard]] int64_t rows_of(const std::string& corpus, int64_t rows) const;
  [[nodiscard]] const std::vector<MixtureSegment>& segments() const { return segments_; }

  // The order for a run that has taken `rows` rows of `former` and continues with this order:
  // `former` up to there, then this one. If both have the same shares at that point, no new cycle
  // begins.
  [[nodiscard]] MixtureOrder continuing(const MixtureOrder& former, int64_t rows) const;

  // [{"first_row": 0, "rows_of_1000": {"books": 200, "web": 800}}, ...]
  [[nodiscard]] nlohmann::json json() const;
  // Throws Error, naming `place`, for anything that json() does not write.
  static MixtureOrder parse(const nlohmann::json& json, const std::string& place);

  bool operator==(const MixtureOrder& other) const { return segments_ == other.segments_; }

 private:
  // A segment's cycle: the corpus of each row, and how many rows of that corpus precede it.
  struct Cycle {
    std::vector<std::pair<std::string, int64_t>> shares;
    std::array<uint16_t, kRowsPerCycle> corpus{};
    std::array<uint16_t, kRowsPerCycle> before{};
  };
  static Cycle cycle_of(const CycleShares& shares);
  [[nodiscard]] size_t segment_of(int64_t global_row) const;
  // Rows of a corpus before a segment.
  [[nodiscard]] int64_t rows_before(size_t segment, const std::string& corpus) const;
  // Rows of a corpus in the first `rows` rows of a segment.
  [[nodiscard]] int64_t rows_in_segment(size_t segment, const std::string& corpus,
                                        int64_t rows) const;

  std::vector<MixtureSegment> segments_;
  std::vector<Cycle> cycles_;                        // one per segment
  std::vector<std::map<std::string, int64_t>> had_;  // rows of each corpus before a segment
};

// A corpus of a mixture; its name is "" if the training data has no named corpora.
struct Corpus {
  std::string name;
  std::shared_ptr<const SequenceSource> rows;
};

class Mixture final : public RowSource {
 public:
  // All corpora must have the same row length and attention scope.
  Mixture(std::vector<Corpus> corpora, MixtureOrder order);

  [[nodiscard]] int64_t seq_len() const override { return corpora_.front().rows->seq_len(); }
  [[nodiscard]] AttentionScope attention() const override {
    return corpora_.front().rows->attention();
  }
  [[nodiscard]] int64_t valid_targets(int64_t global_row) const override;
  void read(int64_t global_row, const RowBuffers& row) const override;

  [[nodiscard]] const std::vector<Corpus>& corpora() const { return corpora_; }
  [[nodiscard]] const MixtureOrder& order() const { return order_; }
  [[nodiscard]] int64_t tokens() const;  // summed over all corpora
  // Number of passes over a corpus in the first `rows` rows.
  [[nodiscard]] double epochs(const Corpus& corpus, int64_t rows) const;
  // Returns a mixture of the same corpora in a different order.
  [[nodiscard]] std::shared_ptr<const Mixture> in_order(MixtureOrder order) const;

 private:
  [[nodiscard]] const SequenceSource& rows_of(const std::string& corpus) const;

  std::vector<Corpus> corpora_;
  MixtureOrder order_;
};

}  // namespace mpt
