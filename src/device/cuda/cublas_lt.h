// RAII wrappers of cuBLASLt's objects; failures become CudaError.
#pragma once

#include <cstdint>

#include <cublasLt.h>

#include "core/tensor.h"
#include "device/cuda/cuda_handles.h"

namespace mpt {

inline std::string answer_of(cublasStatus_t status) {
  return fmt::format("{}: {}", cublasLtGetStatusName(status), cublasLtGetStatusString(status));
}

inline void check_cublas(cublasStatus_t status, std::string_view call,
                         std::source_location where = std::source_location::current()) {
  if (status != CUBLAS_STATUS_SUCCESS) throw CudaError(call, answer_of(status), where);
}

using CublasLt = Owned<cublasLtHandle_t, cublasLtDestroy>;
using MatmulDescription = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using MatmulPreference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

inline CublasLt make_cublas_lt() {
  cublasLtHandle_t handle = nullptr;
  check_cublas(cublasLtCreate(&handle), "cublasLtCreate");
  return CublasLt(handle);
}

inline MatmulDescription make_matmul_description(cublasComputeType_t compute) {
  cublasLtMatmulDesc_t description = nullptr;
  check_cublas(cublasLtMatmulDescCreate(&description, compute, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
  return MatmulDescription(description);
}

// Column-major, as in the library: `rows` contiguous elements per column, columns `leading`
// elements apart.
inline MatrixLayout make_matrix_layout(cudaDataType_t type, int64_t rows, int64_t cols,
                                       int64_t leading) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(cols), leading),
               "cublasLtMatrixLayoutCreate");
  return MatrixLayout(layout);
}

inline MatmulPreference make_matmul_preference() {
  cublasLtMatmulPreference_t preference = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  return MatmulPreference(preference);
}

// The value must have the attribute's exact type: the library is passed its size.
template <class T>
void set_attribute(const MatmulDescription& of, cublasLtMatmulDescAttributes_t attribute, T value) {
  check_cublas(cublasLtMatmulDescSetAttribute(of.get(), attribute, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
}
template <class T>
void set_attribute(const MatrixLayout& of, cublasLtMatrixLayoutAttribute_t attribute, T value) {
  check_cublas(cublasLtMatrixLayoutSetAttribute(of.get(), attribute, &value, sizeof value),
               "cublasLtMatrixLayoutSetAttribute");
}
template <class T>
void set_attribute(const MatmulPreference& of, cublasLtMatmulPreferenceAttributes_t attribute,
                   T value) {
  check_cublas(cublasLtMatmulPreferenceSetAttribute(of.get(), attribute, &value, sizeof value),
               "cublasLtMatmulPreferenceSetAttribute");
}

inline cudaDataType_t cuda_type_of(DType type) {
  switch (type) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kE4M3:
      return CUDA_R_8F_E4M3;
    case DType::kE5M2:
      return CUDA_R_8F_E5M2;
    default:
      throw LogicError(fmt::format("GEMM of {}; expected fp32, bf16, e4m3 or e5m2", name_of(type)));
  }
}

}  // namespace mpt
