// The LLaMA operations on the CPU.
#include "device/cpu/cpu_exec.h"
#include "model/llama_ops_backends.h"
#include "model/llama_ops_on.h"

namespace mpt {

int64_t norm_chunks(int64_t n) {
  constexpr int64_t kRows = RmsNormBackward<float>::kRowsPerChunk;
  return (n + kRows - 1) / kRows;
}

std::unique_ptr<LlamaOps> make_cpu_llama_ops() { return std::make_unique<LlamaOpsOn<CpuExec>>(CpuExec{}); }

}  // namespace mpt
