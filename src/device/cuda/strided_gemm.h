// Batched GEMMs of equal shape at constant strides in memory (cuBLASLt): D_i = alpha op(A_i)
// op(B_i).
//
// FP32 accumulation; fp32 operands are multiplied unrounded (no TF32). For each shape, the
// library's first algorithm that adds in a fixed order is chosen once and kept: the same calls give
// the same bits.
#pragma once

#include <cstdint>
#include <memory>

#include "core/tensor.h"
#include "device/gemm.h"

struct CUstream_st;

namespace mpt {

// `count` matrices shaped like `first`, each `step` elements after its predecessor.
struct StridedBatch {
  Tensor first;
  int64_t step;
};

struct StridedGemmCall {
  int64_t count;
  StridedBatch a;  // [m,k] each, or [k,m] when transposed; fp32 or bf16
  StridedBatch b;  // [k,n], or [n,k] when transposed; same type as a
  StridedBatch d;  // [m,n] fp32 or bf16
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
  float alpha = 1.0f;
};

class StridedGemm {
 public:
  // Workspace size that NVIDIA recommends for Hopper.
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  explicit StridedGemm(CUstream_st* stream, int64_t workspace_bytes = kWorkspaceBytes);
  ~StridedGemm();
  StridedGemm(const StridedGemm&) = delete;
  StridedGemm& operator=(const StridedGemm&) = delete;

  // Enqueues the GEMMs; does nothing if count, m or n is 0. `workspace` must have the number of
  // bytes of device memory passed to the constructor. Throws LogicError if shapes or types
  // disagree, CudaError if cuBLASLt has no algorithm or fails.
  void run(const StridedGemmCall& call, void* workspace);

 private:
  struct Library;  // handle and plans; created on first use: planning needs no GPU
  CUstream_st* stream_;
  int64_t workspace_bytes_;
  std::unique_ptr<Library> library_;
};

}  // namespace mpt
