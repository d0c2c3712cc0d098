// LLaMA operations on the CPU.
#include "device/cpu/cpu_exec.h"
#include "model/llama_ops_on.h"

namespace mpt {

template <>
std::unique_ptr<LlamaOps> make_cpu_ops(const LlamaOps::Options&) {
  return std::make_unique<LlamaOpsOn<CpuExec>>(CpuExec{});
}

}  // namespace mpt
