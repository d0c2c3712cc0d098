// A page about runs, for a browser: one HTML file that loads nothing from
// elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/watch/run_records.h"

namespace mpt {

// However long the runs are, the page stays below this.
inline constexpr int64_t kMostPageBytes = 2'000'000;
inline constexpr size_t kMostPageRuns = 64;

// How a run ended, as far as its records tell.
enum class RunState : uint8_t { kComplete, kNotFinite, kDiverged, kUnfinished };

// kNotFinite: its last loss is not finite. kDiverged: the mean of its last
// losses, 2 % of them, is more than 0.5 nats above the lowest mean of as many.
// kUnfinished: it stopped, or still trains.
RunState state_of(const RunRecords& run);

// Outcome of each run, curves over steps, memory, what differs between the
// configurations, and where it ran. What comes from files is escaped. Throws
// Error for more than kMostPageRuns runs.
std::string run_page(const std::vector<RunRecords>& runs);

}  // namespace mpt
