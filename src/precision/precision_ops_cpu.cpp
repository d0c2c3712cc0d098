// The operations on encoded weights on the CPU.
#include "device/cpu/cpu_exec.h"
#include "precision/precision_ops_backends.h"
#include "precision/precision_ops_on.h"

namespace mpt {

std::unique_ptr<PrecisionOps> make_cpu_precision_ops(Allocator& allocator, int64_t most_rows) {
  return std::make_unique<PrecisionOpsOn<CpuExec>>(CpuExec{}, allocator, most_rows);
}

}  // namespace mpt
