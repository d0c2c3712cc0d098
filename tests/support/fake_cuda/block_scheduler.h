// Runs the thread blocks of a kernel launch, with a fiber for every thread that must wait for
// others.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include <cuda_runtime.h>

#include "support/fake_cuda/fake_cuda.h"

namespace fake_cuda::detail {

struct Launch {
  dim3 grid, block;
  size_t shared_bytes = 0;
  Kernel kernel;
};

enum class Direction : uint8_t { kForward, kBackward };

// Returns the fault, if any; the rest of the grid is then not run.
std::optional<std::string> run_grid(const Launch& launch, Direction direction);
void watch_races(Races races);

}  // namespace fake_cuda::detail
