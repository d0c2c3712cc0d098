// M+Adam on the CPU.
#include "device/cpu/cpu_exec.h"
#include "optim/unit_passes_by_rule.h"

namespace mpt {

MPT_UNIT_PASSES(, CpuExec, MPlusAdamScale<DenseDirection>)

}  // namespace mpt
