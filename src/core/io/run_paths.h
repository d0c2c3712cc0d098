// Where a run keeps its checkpoints: "/a/runs/b/checkpoints/step_00000001".
#pragma once

#include <string>

namespace mpt {

// In the directory of a run: the one that holds its checkpoints, or a symbolic link to it.
inline constexpr const char* kCheckpoints = "checkpoints";

// The directory of the run that a checkpoint belongs to, "/a/runs/b" in the example; "" if neither
// the path as given nor what its symbolic links lead to lies in a run.
std::string run_of_checkpoint(const std::string& checkpoint);

}  // namespace mpt
