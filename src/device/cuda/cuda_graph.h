// Repeated work as a CUDA graph: run as it is the first time, recorded the second, replayed from then on.
//
// The first run is plain, so that whatever happens once (modules being loaded, algorithms being chosen) is
// not recorded. A recording that fails is ended and thrown away before the error is passed on.
#pragma once

#include <memory>

#include <cuda_runtime.h>

#include "device/device.h"

namespace mpt {

// How deep in repeated work the host is, so that a device can refuse what a recording cannot hold.
struct RepetitionDepth {
  int depth = 0;
};

// `depth` is shared by all the work of one device, and outlives it.
std::unique_ptr<RepeatedWork> make_cuda_graph(cudaStream_t stream, RepetitionDepth& depth);
// The same refusals, but nothing is recorded.
std::unique_ptr<RepeatedWork> make_plain_repeated_work(RepetitionDepth& depth);

}  // namespace mpt
