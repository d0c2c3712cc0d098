#include "core/bf16.h"
#include "device/cuda/cuda_exec.cuh"
#include "ranks/cuda/nccl_transport.h"

namespace mpt {
namespace {

struct Widen {
  const bf16* from;
  float* to;
  MPT_HD void operator()(int64_t i) const { to[i] = to_float(from[i]); }
};

}  // namespace

void widen_sums(const Tensor& bf16_from, const Tensor& fp32_to, cudaStream_t stream) {
  CudaExec{stream}.elements(fp32_to.elements(), Widen{bf16_from.as<bf16>(), fp32_to.as<float>()});
}

}  // namespace mpt
