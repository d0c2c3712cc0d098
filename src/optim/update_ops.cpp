// Which backend's optimizers' operations a device takes.
#include "optim/update_ops_backends.h"

namespace mpt {

std::unique_ptr<UpdateOps> make_update_ops(Device& device) {
#ifdef MPT_WITH_CUDA
  if (device.backend() == Backend::kCuda) return make_cuda_update_ops(device.cuda_stream());
#endif
  check(device.backend() == Backend::kCpu, "no optimizers' operations for {}", name_of(device.backend()));
  return make_cpu_update_ops();
}

}  // namespace mpt
