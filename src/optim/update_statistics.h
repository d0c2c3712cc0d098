// Update statistics of a step: how many updates changed the stored weight after rounding, by
// magnitude of the weight, for the whole update and for each branch by itself; and the size of
// updates before and after rounding (docs/numerics.md "Update statistics").
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/enum_names.h"

namespace mpt {

class Communicator;

// The whole update, or the part that one branch of M+Adam would have made by itself.
enum class Branch : uint8_t { kBoth, kAdditive, kMultiplicative };
template <>
struct EnumNames<Branch> {
  static constexpr std::array<std::string_view, 3> kNames{"both", "additive", "multiplicative"};
};

// vanished: the update was not zero, but the stored weight is unchanged; moved: the stored weight
// changed, by at least one step of its grid.
enum class UpdateOutcome : uint8_t { kVanished, kMoved, kSignChanged, kLeftZero, kEnteredZero };
template <>
struct EnumNames<UpdateOutcome> {
  static constexpr std::array<std::string_view, 5> kNames{"vanished", "moved", "sign_changed",
                                                          "left_zero", "entered_zero"};
};

inline constexpr int kBranches = int(EnumNames<Branch>::kNames.size());
inline constexpr int kOutcomes = int(EnumNames<UpdateOutcome>::kNames.size());

// Buckets by magnitude before the update: bucket 0 holds zeros, bucket 1 magnitudes below 2^-16,
// the next ones two binades each; the last one holds everything from 4 up.
inline constexpr int kLowestBinade = -16, kHighestBinade = 2, kBinadesPerBucket = 2;
inline constexpr int kMagnitudeBuckets = 3 + (kHighestBinade - kLowestBinade) / kBinadesPerBucket;

// Lower ends of buckets 1 and up: 0, 2^-16, 2^-14, ... 4.
std::vector<double> bucket_edges();

// Effect of the whole update d: e is the change of the stored value.
struct EffectSums {
  double squares;   // e^2
  double products;  // d e
};

// Sums over weights w. d = w~ - w is the change that a branch asked for, before rounding to the
// stored format.
struct UpdateSums {
  double weight_squares;            // w^2
  double asked_squares[kBranches];  // d^2
  EffectSums stored;
  EffectSums with_residuals;  // of weights plus their residuals; 0 without residuals
};
void add_sums(const UpdateSums& sums, UpdateSums& to);

// One lane's counts over a sequence of update blocks; also the layout of a row of the counter
// table.
struct UpdateCounters {
  int32_t weights[kMagnitudeBuckets];
  int32_t outcomes[kBranches][kOutcomes][kMagnitudeBuckets];
  int32_t dragged;
  int32_t saturated_blocks;
  double drag_log2;
  UpdateSums sums;
};

// Update blocks counted by one group.
inline constexpr int64_t kCountedBlocks = 64;
constexpr int64_t counted_spans(int64_t blocks) {
  return (blocks + kCountedBlocks - 1) / kCountedBlocks;
}

// Statistics of one tensor in one step.
struct UpdateStatistics {
  std::string name;
  int branches = 1;            // 1: only kBoth is filled
  bool has_residuals = false;  // sums.with_residuals is filled
  std::array<int64_t, kMagnitudeBuckets> weights{};
  std::array<std::array<std::array<int64_t, kMagnitudeBuckets>, kOutcomes>, kBranches> outcomes{};
  // Weights that changed by less than one step of their grid because their shared scale moved
  // (docs/numerics.md "Scale drag"), and the sum of log2 of the factors they changed by.
  int64_t dragged = 0;
  double drag_log2 = 0;
  int64_t saturated_blocks = 0;  // blocks whose largest element was clipped
  UpdateSums sums{};

  [[nodiscard]] int64_t elements() const;
  // Fraction of the weights whose code changed, that is, which moved by at least one step of their
  // grid.
  [[nodiscard]] double flipped() const;
  // RMS of the weights, of the changes a branch asked for, and of an effect.
  [[nodiscard]] double weight_rms() const;
  [[nodiscard]] double asked_rms(Branch branch) const;
  [[nodiscard]] double rms(const EffectSums& effect) const;
  // Effective descent quality over |d|: <d, e> / <d, d>; nullopt if no change was asked for.
  [[nodiscard]] std::optional<double> edq_ratio(const EffectSums& effect) const;
};

void add_counters(const UpdateCounters& counters, UpdateStatistics& sum);
// Collective, with the same tensors on all ranks. Replaces counts of own update blocks by their sum
// over all ranks, added in rank order.
void sum_over_ranks(std::vector<UpdateStatistics>& statistics, Communicator& ranks);

}  // namespace mpt
