// The verb `train`, as called from the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mpt {

struct TrainCommand {
  std::string config;                  // a path, or the name of an installed config
  std::vector<std::string> overrides;  // "a.b=c"
  std::string resume;     // "" new run, "auto" continue or start, "latest" continue, or a path
  std::string program{};  // output of `mpretrain --version`, for report.json
  std::optional<int64_t> profile_steps{};  // for a profile, which writes nothing
};

// Warm-up steps, excluded from a profile.
inline constexpr int64_t kUnprofiledSteps = 3;

enum class TrainEnd : uint8_t {
  kComplete,
  kStopped
};  // kStopped: by a signal; the last finished step is saved

TrainEnd run_train(const TrainCommand& command);

}  // namespace mpt
