#include "config/run_paths.h"

#include <string>

#include "core/io/file_system.h"
#include "core/io/run_paths.h"

namespace mpt {

std::string run_directory(const RunConfig& config) { return config.output_dir + "/" + config.name; }
std::string checkpoint_directory(const RunConfig& config) {
  return in_directory(run_directory(config), kCheckpoints);
}
std::string metrics_path(const RunConfig& config) {
  return run_directory(config) + "/metrics.jsonl";
}
std::string samples_path(const RunConfig& config) {
  return run_directory(config) + "/samples.jsonl";
}
bool has_metrics(FileSystem& fs, const RunConfig& config) {
  const std::string path = metrics_path(config);
  return fs.exists(path) && fs.file_size(path) > 0;
}

}  // namespace mpt
