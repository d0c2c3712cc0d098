// The result of `mpretrain plan`: whether a run could start here, how long it would take, which
// resources it needs.
//
// Every problem is an error with which `train` would refuse the run, found by the same code; only
// disk space is checked in addition, since `train` notices a full disk only when it saves. Nothing
// is written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/run_config.h"
#include "config/run_data.h"
#include "core/io/file_system.h"
#include "plan/time_estimate.h"
#include "train/reports/run_report.h"
#include "train/resources/memory_fit.h"
#include "train/resources/run_place.h"

namespace mpt {

// Training or validation shards. Zero tokens if not named or not usable.
struct PlannedShards {
  bool named = false;
  int64_t tokens = 0, sequences = 0;
};

struct RunPlan {
  std::vector<std::string> problems{};           // why the run cannot start; empty: it can
  int64_t needed = 0;                            // bytes of memory
  std::optional<int64_t> available{};            // bytes for this rank; none without such a device
  int64_t micro_batch = 0, micro_batches = 0;    // configured rows of one; their number per step
  std::optional<int64_t> largest_micro_batch{};  // rows that would fit
  std::string rows{};                            // why this many; "" if configured
  RowsOnGpus on_gpus{};
  PlannedShards training{}, validation{};
  std::vector<CorpusEpochs> epochs{};  // of each corpus; empty if not usable
  std::optional<int64_t> tokenizer_pieces{};
  bool lacks_data = false;  // a problem concerns tokens or tokenizer
  PlannedDisk disk{};
  TimeEstimate time{};

  [[nodiscard]] bool fits() const { return !available || needed <= *available; }
};

struct PlanOptions {
  Checkpoints saved = Checkpoints::kNone;
  int64_t scanned_tokens = kScannedTokens;  // of each corpus without a manifest
};

// `device` comes from make_planning_device(). CPU ranks are assumed to share this machine. Trains
// for a fraction of a second to measure the device. A micro-batch without rows is a whole step:
// `chosen` has the rows from choose_rows().
RunPlan plan_of(const ChosenRows& chosen, Device& device,
                const Communicator& ranks = Communicator::single(),
                const PlanOptions& options = {});

// The plan as text, and as JSON (docs/formats.md).
std::string verdict(const RunConfig& config, const RunPlan& plan);
nlohmann::ordered_json verdict_json(const RunConfig& config, const RunPlan& plan);

}  // namespace mpt
