// Records of a run, by tag, for its report page.
//
// metrics.jsonl is read like by scripts/mpretrain_tools/runs/metrics.py: a torn record is skipped;
// for a step recorded twice the last record counts; records beyond the step that a run resumed from
// or rolled back to are dropped.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/file_system.h"

namespace mpt {

struct RecordedPoint {
  int64_t step;
  double value;  // NaN where it was not finite
};
using RecordedCurve = std::vector<RecordedPoint>;  // by step

struct RecordedSample {
  std::string prompt, text;
};

struct RunRecords {
  std::string name;                                        // the last part of its directory
  std::map<std::string, RecordedCurve> curves;             // by the tags of event_file.h
  std::map<int64_t, std::vector<RecordedSample>> samples;  // by step, of samples.jsonl
  int64_t steps = 0;                                       // number of recorded steps that count
  int64_t last_step = 0;
  int64_t torn_lines = 0, resumed = 0, rolled_back = 0;
  nlohmann::json config,
      report;  // config.json and report.json; null if missing
};

// Reads `path`: a run's directory or its metrics.jsonl, which a run may still be writing. Throws
// Error if it contains no step.
RunRecords read_run(FileSystem& fs, const std::string& path);

// Renames runs of the same name to the paths they were read from.
void name_apart(std::vector<RunRecords>& runs, const std::vector<std::string>& paths);

}  // namespace mpt
