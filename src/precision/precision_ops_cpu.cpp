// The operations on encoded weights on the CPU.
#include "device/cpu/cpu_exec.h"
#include "precision/precision_ops_on.h"

namespace mpt {

template <>
std::unique_ptr<PrecisionOps> make_cpu_ops(const PrecisionOps::Options& options) {
  return std::make_unique<PrecisionOpsOn<CpuExec>>(CpuExec{}, options.allocator, options.most_rows);
}

}  // namespace mpt
