// A CUDA device's communication stream, and captured work as a CUDA graph.
#pragma once

#include <memory>

#include <cuda_runtime.h>

#include "device/device.h"

namespace mpt {

// A communication stream of a CUDA device: a second stream, synchronized with the first by events
// in both directions. The host never waits, and CUDA graphs can capture it: communication work
// started within captured work must be waited for within the same captured work.
//
// `stream`, the device's own, must outlive the returned object, as must everything its work uses:
// the destructor waits for work that is still running.
std::unique_ptr<CommStream> make_cuda_comm_stream(cudaStream_t stream);

// Nesting depth of captured work, so that a device can reject calls that a recording cannot hold.
struct CaptureDepth {
  int depth = 0;
};

// Captured work as a CUDA graph: run directly the first time, recorded the second, replayed
// afterwards. The direct first run keeps one-time work (loading modules, choosing algorithms) out
// of the recording. A failed recording is ended and discarded before the error is rethrown.
//
// `depth` is shared by all captured work of a device and must outlive the returned object.
std::unique_ptr<GraphCapture> make_cuda_graph(cudaStream_t stream, CaptureDepth& depth);
// Rejects the same calls, but records nothing.
std::unique_ptr<GraphCapture> make_plain_capture(CaptureDepth& depth);

}  // namespace mpt
