#include "device/backends.h"

#include "core/check.h"

namespace mpt {
namespace {

const CudaBackend*& registered_cuda() {
  static const CudaBackend* backend = nullptr;
  return backend;
}
const CudaBackend& cuda_or_error() {
  if (registered_cuda() == nullptr) throw Error(no_cuda_device(0));
  return *registered_cuda();
}

}  // namespace

CudaBackend::CudaBackend(const Makers& makers) : makers_(makers) { registered_cuda() = this; }

bool has_cuda() { return registered_cuda() != nullptr; }

std::string no_cuda_device(int index) {
  if (has_cuda()) return registered_cuda()->makers().why_unavailable(index);
  return "this program was built without CUDA (configure with -DMPT_CUDA=ON where nvcc is "
         "installed)";
}
std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options) {
  return cuda_or_error().makers().device(options);
}
std::unique_ptr<Device> make_cuda_planning_device(const CudaDeviceOptions& options) {
  return cuda_or_error().makers().planning_device(options);
}

std::unique_ptr<Device> make_device(const DeviceOptions& options) {
  if (options.backend == Backend::kCuda) return make_cuda_device(options.cuda);
  if (const std::string problem = why_unavailable(options); !problem.empty()) throw Error(problem);
  return make_cpu_device(options.threads, options.bf16_dot);
}

std::unique_ptr<Device> make_planning_device(const DeviceOptions& options) {
  return options.backend == Backend::kCuda ? make_cuda_planning_device(options.cuda)
                                           : make_cpu_device(options.threads, options.bf16_dot);
}

std::string why_unavailable(const DeviceOptions& options) {
  if (options.backend == Backend::kCuda) return no_cuda_device(options.cuda.index);
  const std::string problem = why_no_bf16_dot(options.bf16_dot);
  return problem.empty() ? ""
                         : fmt::format("device.bf16_dot = {}: {}; auto takes what there is",
                                       name_of(options.bf16_dot), problem);
}

Backend available_backend() {
  return no_cuda_device(CudaDeviceOptions{}.index).empty() ? Backend::kCuda : Backend::kCpu;
}

}  // namespace mpt
