// Work beside a CUDA device's own, in a second stream that waits for the first one's events and the other way
// round. The host waits for nothing, and a CUDA graph records it: within repeated work, all side work must be
// waited for in the same repeated work.
#pragma once

#include <memory>

#include <cuda_runtime.h>

#include "device/side_queue.h"

namespace mpt {

// `stream` is the device's own and outlives the queue, as does what the queue's work uses: it may still run
// when the queue goes, which waits for it.
std::unique_ptr<SideQueue> make_cuda_side_queue(cudaStream_t stream);

}  // namespace mpt
