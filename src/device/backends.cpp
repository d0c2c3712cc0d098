#include "device/backends.h"

#include "core/check.h"

namespace mpt {
#ifdef MPT_WITH_CUDA
// These are src/device/cuda/'s then.
#else
std::string no_cuda_device(int) {
  return "this program was built without CUDA (configure with -DMPT_CUDA=ON where nvcc is installed)";
}
std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options) {
  throw Error(no_cuda_device(options.index));
}
std::unique_ptr<Device> make_cuda_planning_device(const CudaDeviceOptions& options) {
  throw Error(no_cuda_device(options.index));
}
#endif

std::unique_ptr<Device> make_device(const DeviceOptions& options) {
  return options.backend == Backend::kCuda ? make_cuda_device(options.cuda)
                                           : make_cpu_device(options.threads);
}

std::unique_ptr<Device> make_planning_device(const DeviceOptions& options) {
  return options.backend == Backend::kCuda ? make_cuda_planning_device(options.cuda)
                                           : make_cpu_device(options.threads);
}

std::string why_unavailable(const DeviceOptions& options) {
  return options.backend == Backend::kCuda ? no_cuda_device(options.cuda.index) : "";
}

Backend available_backend() {
  return no_cuda_device(CudaDeviceOptions{}.index).empty() ? Backend::kCuda : Backend::kCpu;
}

}  // namespace mpt
