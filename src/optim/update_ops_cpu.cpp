// The optimizers' operations on the CPU.
#include "device/cpu/cpu_exec.h"
#include "optim/update_ops_backends.h"
#include "optim/update_ops_on.h"

namespace mpt {

int64_t units_of(int64_t rows, int64_t cols) { return UnitGrid{rows, cols}.units(); }

int64_t square_sums(int64_t rows, int64_t cols) {
  constexpr int64_t kUnits = SquareSum<ElementCodec>::kUnitsPerPiece;
  return (units_of(rows, cols) + kUnits - 1) / kUnits;
}

std::unique_ptr<UpdateOps> make_cpu_update_ops() { return std::make_unique<UpdateOpsOn<CpuExec>>(CpuExec{}); }

}  // namespace mpt
