// CodecOps on a CUDA stream. Bit-identical to the CPU (no contraction: -fmad=false).
#include "device/cuda/cuda_exec.cuh"
#include "precision/codec_ops_on.h"

namespace mpt {
namespace {

std::unique_ptr<CodecOps> make(StreamRef stream, const CodecOps::Options& options) {
  return std::make_unique<CodecOpsOn<CudaExec>>(CudaExec{stream_of(stream)}, options.allocator,
                                                options.most_rows);
}
const RegisterCudaOps<CodecOps> registered{make};

}  // namespace

}  // namespace mpt
