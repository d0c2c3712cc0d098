// Which backend's operations on FP8 operands a device takes.
#include "precision/fp8_ops_backends.h"

namespace mpt {

std::unique_ptr<Fp8Ops> make_fp8_ops(Device& device) {
#ifdef MPT_WITH_CUDA
  if (device.backend() == Backend::kCuda) return make_cuda_fp8_ops(device.cuda_stream());
#endif
  check(device.backend() == Backend::kCpu, "no operations on FP8 operands for {}", name_of(device.backend()));
  return make_cpu_fp8_ops();
}

}  // namespace mpt
