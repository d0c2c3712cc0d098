// A report page about runs for a browser: one HTML file that loads nothing from elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "watch/run_records.h"

namespace mpt {

// Upper bound on the size of a page, for runs of any length.
inline constexpr int64_t kMostPageBytes = 2'000'000;
inline constexpr size_t kMostPageRuns = 64;

// Outcome of a run, as far as its records show.
enum class RunOutcome : uint8_t { kComplete, kNotFinite, kDiverged, kUnfinished };

// kNotFinite: its last loss is not finite. kDiverged: the mean of its last losses, 2 % of them, is
// more than 0.5 nats above the lowest mean of as many. kUnfinished: it stopped, or is still
// training.
RunOutcome state_of(const RunRecords& run);

// Returns the outcome of each run, curves over steps, memory, differences between the
// configurations, and the environment. Text from files is escaped. Throws Error for more than
// kMostPageRuns runs.
std::string run_page(const std::vector<RunRecords>& runs);

}  // namespace mpt
