// The optimizers' operations on the CPU.
#include "device/cpu/cpu_exec.h"
#include "optim/update_ops_on.h"

namespace mpt {

int64_t square_sums(const Tensor& tensor) {
  constexpr int64_t kUnits = SquareSum<float>::kUnitsPerPiece;
  return (UnitGrid{tensor.rows, tensor.cols}.units() + kUnits - 1) / kUnits;
}

std::unique_ptr<UpdateOps> make_update_ops(Device&) {
  return std::make_unique<UpdateOpsOn<CpuExec>>(CpuExec{});
}

}  // namespace mpt
