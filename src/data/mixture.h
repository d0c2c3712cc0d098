// Rows of several corpora in one order, each corpus by its weight: the rows of a training run.
//
// Every 1,000 rows hold a whole number of rows of each corpus, spread as evenly as whole numbers
// can be: after any n rows of such a cycle, a corpus has had less than one row more or less than
// its share of n, and all cycles of a segment are alike, so any 1,000 consecutive rows hold exactly
// those numbers. Row k of a corpus is its SequenceSource's sequence k, so each corpus has its own
// epochs and its own shuffling.
//
// Which row of which corpus a global row is depends on the order's segments and on nothing else:
// not on the batch size, ranks or threads.
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

// Rows in a cycle of each corpus, by its name; they add up to kRowsPerCycle.
using CycleShares = std::map<std::string, int64_t>;

// The shares nearest to the weights, which need not add up to 1 (largest remainders; of equal ones,
// the first name). Throws Error if a weight is negative, not finite or comes to less than one row
// in a cycle without being 0, or if all are 0.
CycleShares shares_of(const std::map<std::string, double>& weights);

// From a global row on, rows are drawn by these shares.
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

  // The first segment begins at row 0, each later one after the one before it.
  explicit MixtureOrder(std::vector<MixtureSegment> segments);

  [[nodiscard]] Place place(int64_t global_row) const;
  // Rows of a corpus among the first `rows` global rows.
  [[nodiscard]] int64_t rows_of(const std::string& corpus, int64_t rows) const;
  [[nodiscard]] const std::vector<MixtureSegment>& segments() const { return segments_; }

  // What a run does that has taken `rows` rows of `former` and goes on by this order: `former` up
  // to there, then this one. Where both have the same shares there, no cycle begins anew.
  [[nodiscard]] MixtureOrder continuing(const MixtureOrder& former, int64_t rows) const;

  // [{"first_row": 0, "rows_of_1000": {"books": 200, "web": 800}}, ...]
  [[nodiscard]] nlohmann::json json() const;
  // Throws Error, naming `place`, for anything that json() does not write.
  static MixtureOrder parse(const nlohmann::json& json, const std::string& place);

  bool operator==(const MixtureOrder& other) const { return segments_ == other.segments_; }

 private:
  // A segment's cycle: which corpus each of its rows is of, and how many rows of it precede.
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
  std::vector<Cycle> cycles_;                        // of each segment
  std::vector<std::map<std::string, int64_t>> had_;  // rows of each corpus before a segment
};

// A corpus of a mixture; the name is "" where training data has no named corpora.
struct Corpus {
  std::string name;
  std::shared_ptr<const SequenceSource> rows;
};

class Mixture final : public RowSource {
 public:
  // All corpora have rows of the same length and the same scope of attention.
  Mixture(std::vector<Corpus> corpora, MixtureOrder order);

  [[nodiscard]] int64_t seq_len() const override { return corpora_.front().rows->seq_len(); }
  [[nodiscard]] AttentionScope attention() const override {
    return corpora_.front().rows->attention();
  }
  [[nodiscard]] int64_t valid_targets(int64_t global_row) const override;
  void read(int64_t global_row, const RowBuffers& row) const override;

  [[nodiscard]] const std::vector<Corpus>& corpora() const { return corpora_; }
  [[nodiscard]] const MixtureOrder& order() const { return order_; }
  [[nodiscard]] int64_t tokens() const;  // of all corpora
  // How often a corpus is read in the first `rows` rows.
  [[nodiscard]] double epochs(const Corpus& corpus, int64_t rows) const;
  // The same corpora in another order.
  [[nodiscard]] std::shared_ptr<const Mixture> in_order(MixtureOrder order) const;

 private:
  [[nodiscard]] const SequenceSource& rows_of(const std::string& corpus) const;

  std::vector<Corpus> corpora_;
  MixtureOrder order_;
};

}  // namespace mpt
