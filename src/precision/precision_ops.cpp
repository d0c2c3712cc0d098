// Which backend's operations on encoded weights a device takes.
#include "precision/precision_ops_backends.h"

namespace mpt {
namespace {

std::unique_ptr<PrecisionOps> make_ops(Backend backend, CUstream_st* stream, Allocator& allocator,
                                       int64_t most_rows) {
#ifdef MPT_WITH_CUDA
  if (backend == Backend::kCuda) return make_cuda_precision_ops(stream, allocator, most_rows);
#else
  (void)stream;
#endif
  check(backend == Backend::kCpu, "no operations on encoded weights for {}", name_of(backend));
  return make_cpu_precision_ops(allocator, most_rows);
}

}  // namespace

std::unique_ptr<PrecisionOps> make_precision_ops(Device& device, Allocator& allocator, int64_t most_rows) {
  return make_ops(device.backend(), device.cuda_stream(), allocator, most_rows);
}

std::unique_ptr<PrecisionOps> make_precision_ops(Device& device, SideQueue& queue, Allocator& allocator,
                                                 int64_t most_rows) {
  return make_ops(device.backend(), queue.cuda_stream(), allocator, most_rows);
}

}  // namespace mpt
