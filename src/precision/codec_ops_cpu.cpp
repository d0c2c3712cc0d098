// CodecOps on the CPU.
#include "device/cpu/cpu_exec.h"
#include "precision/codec_ops_on.h"

namespace mpt {

template <>
std::unique_ptr<CodecOps> make_cpu_ops(const CodecOps::Options& options) {
  return std::make_unique<CodecOpsOn<CpuExec>>(CpuExec{}, options.allocator, options.most_rows);
}

}  // namespace mpt
