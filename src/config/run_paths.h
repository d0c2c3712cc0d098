// Where a run writes its files.
#pragma once

#include <string>

#include "config/run_config.h"
#include "core/io/file_system.h"

namespace mpt {

// runs/<name>, and paths in it.
std::string run_directory(const RunConfig& config);
std::string checkpoint_directory(const RunConfig& config);
std::string metrics_path(const RunConfig& config);
std::string samples_path(const RunConfig& config);
// Whether metrics.jsonl has any line (a step or an event).
bool has_metrics(FileSystem& fs, const RunConfig& config);

}  // namespace mpt
