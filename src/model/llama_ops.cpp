// Which backend's LLaMA operations a device takes.
#include "model/llama_ops_backends.h"

namespace mpt {

std::unique_ptr<LlamaOps> make_llama_ops(Device& device) {
#ifdef MPT_WITH_CUDA
  if (device.backend() == Backend::kCuda) return make_cuda_llama_ops(device.cuda_stream());
#endif
  check(device.backend() == Backend::kCpu, "no LLaMA operations for {}", name_of(device.backend()));
  return make_cpu_llama_ops();
}

}  // namespace mpt
