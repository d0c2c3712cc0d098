// Fp8Ops on the CPU.
#include "device/cpu/cpu_exec.h"
#include "precision/fp8_ops_on.h"

namespace mpt {

template <>
std::unique_ptr<Fp8Ops> make_cpu_ops(const Fp8Ops::Options&) {
  return std::make_unique<Fp8OpsOn<CpuExec>>(CpuExec{});
}

}  // namespace mpt
