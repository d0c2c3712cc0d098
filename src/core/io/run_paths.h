// Location of a run's checkpoints: "/a/runs/b/checkpoints/step_00000001".
#pragma once

#include <string>

namespace mpt {

// Subdirectory of a run's directory that holds its checkpoints, or a symbolic link to it.
inline constexpr const char* kCheckpoints = "checkpoints";

// Directory of the run that a checkpoint belongs to, "/a/runs/b" in the example; "" if neither the
// path as given nor the target of its symbolic links is in a run.
std::string run_of_checkpoint(const std::string& checkpoint);

}  // namespace mpt
