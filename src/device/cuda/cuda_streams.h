// What a CUDA device does besides its own stream: collectives in a second one, and captured work as a CUDA
// graph.
#pragma once

#include <memory>

#include <cuda_runtime.h>

#include "device/device.h"

namespace mpt {

// Work beside a CUDA device's own, in a second stream that waits for the first one's events and the other way
// round. The host waits for nothing, and a CUDA graph records it: within captured work, all such work must be
// waited for in the same captured work.
//
// `stream` is the device's own and outlives this one, as does what its work uses: it may still run
// when this one goes, which waits for it.
std::unique_ptr<CommStream> make_cuda_comm_stream(cudaStream_t stream);

// How deep in captured work the host is, so that a device can refuse what a recording cannot hold.
struct CaptureDepth {
  int depth = 0;
};

// Captured work as a CUDA graph: run as it is the first time, recorded the second, replayed from then on. The
// first run is plain, so that whatever happens once (modules being loaded, algorithms being chosen) is not
// recorded. A recording that fails is ended and thrown away before the error is passed on.
//
// `depth` is shared by all the work of one device, and outlives it.
std::unique_ptr<GraphCapture> make_cuda_graph(cudaStream_t stream, CaptureDepth& depth);
// The same refusals, but nothing is recorded.
std::unique_ptr<GraphCapture> make_plain_capture(CaptureDepth& depth);

}  // namespace mpt
