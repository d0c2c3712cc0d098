// Which backend's operations on encoded weights a device takes.
#include "precision/precision_ops_backends.h"

namespace mpt {

std::unique_ptr<PrecisionOps> make_precision_ops(Device& device, Allocator& allocator, int64_t most_rows) {
#ifdef MPT_WITH_CUDA
  if (device.backend() == Backend::kCuda) return make_cuda_precision_ops(device.cuda_stream(), allocator, most_rows);
#endif
  check(device.backend() == Backend::kCpu, "no operations on encoded weights for {}", name_of(device.backend()));
  return make_cpu_precision_ops(allocator, most_rows);
}

}  // namespace mpt
