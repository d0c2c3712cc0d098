#include "device/cuda/strided_gemm.h"

#include <compare>
#include <map>

#include "device/cuda/cublas_lt.h"

namespace mpt {
namespace {

// A batch as stored, without its address.
struct StridedOperand {
  DType dtype;
  int64_t rows, cols, stride, step;
  uint32_t alignment;  // bytes

  static StridedOperand of(const StridedBatch& batch);
  auto operator<=>(const StridedOperand&) const = default;
};

struct Key {
  StridedOperand a, b, d;
  Transpose transpose_a, transpose_b;
  int64_t count;
  auto operator<=>(const Key&) const = default;
};

// Alignment of all matrices and rows: the largest power of two that divides every start address, up
// to the widest access of any kernel, so that the heads of one tensor share an algorithm. By
// default cuBLASLt assumes 256.
constexpr uint64_t kWidestAccess = 16;  // bytes

StridedOperand StridedOperand::of(const StridedBatch& batch) {
  const Tensor& t = batch.first;
  const auto distances = static_cast<uint64_t>((t.stride | batch.step) * size_of(t.dtype));
  const uint64_t all = reinterpret_cast<uintptr_t>(t.data) | distances | kWidestAccess;
  return {t.dtype, t.rows, t.cols, t.stride, batch.step, static_cast<uint32_t>(all & (~all + 1))};
}

// Rows of a row-major matrix are columns here.
MatrixLayout layout_of(const StridedOperand& x, int64_t count) {
  MatrixLayout layout = make_matrix_layout(cuda_type_of(x.dtype), x.cols, x.rows, x.stride);
  set_attribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(count));
  set_attribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, x.step);
  return layout;
}

cublasOperation_t operation_of(Transpose transpose) {
  return transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

// Row-major D = op(A) op(B) is column-major D^T = op(B)^T op(A)^T: the library's first operand is
// our b.
MatmulDescription description_of(const Key& key) {
  MatmulDescription description = make_matmul_description(CUBLAS_COMPUTE_32F);
  set_attribute(description, CUBLASLT_MATMUL_DESC_TRANSA, operation_of(key.transpose_b));
  set_attribute(description, CUBLASLT_MATMUL_DESC_TRANSB, operation_of(key.transpose_a));
  return description;
}

// Allows split sums only if their parts are added in a fixed order, in FP32.
MatmulPreference preference_of(const Key& key, int64_t workspace_bytes) {
  MatmulPreference preference = make_matmul_preference();
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                static_cast<uint64_t>(workspace_bytes));
  set_attribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b.alignment);
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a.alignment);
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.d.alignment);
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.d.alignment);
  return preference;
}

struct Plan {
  MatmulDescription description;
  MatrixLayout a, b, d;
  cublasLtMatmulAlgo_t algorithm;
};

Plan make_plan(const CublasLt& handle, const Key& key, int64_t workspace_bytes) {
  Plan plan{.description = description_of(key),
            .a = layout_of(key.a, key.count),
            .b = layout_of(key.b, key.count),
            .d = layout_of(key.d, key.count),
            .algorithm = {}};
  const MatmulPreference preference = preference_of(key, workspace_bytes);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle.get(), plan.description.get(), plan.b.get(), plan.a.get(), plan.d.get(), plan.d.get(),
      preference.get(), 1, &found, &count);
  const std::string call = fmt::format(
      "cublasLtMatmulAlgoGetHeuristic for {} GEMMs {}[{},{}]{} x [{},{}]{} -> {}", key.count,
      name_of(key.a.dtype), key.a.rows, key.a.cols, key.transpose_a == Transpose::kYes ? "^T" : "",
      key.b.rows, key.b.cols, key.transpose_b == Transpose::kYes ? "^T" : "", name_of(key.d.dtype));
  check_cublas(status, call);
  check_cublas(count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : found.state, call);
  plan.algorithm = found.algo;
  return plan;
}

void check_call(const StridedGemmCall& call) {
  const Tensor &a = call.a.first, &b = call.b.first, &d = call.d.first;
  check_shapes(GemmCall{
      .a = a, .b = b, .d = d, .transpose_a = call.transpose_a, .transpose_b = call.transpose_b});
  check(a.dtype == b.dtype && !is_fp8(a.dtype),
        "batched GEMMs of {} and {}; expected both fp32 or both bf16", name_of(a.dtype),
        name_of(b.dtype));
}

}  // namespace

struct StridedGemm::Library {
  CublasLt handle = make_cublas_lt();
  std::map<Key, Plan> plans;

  const Plan& plan_for(const Key& key, int64_t workspace_bytes) {
    const auto known = plans.find(key);
    return known != plans.end()
               ? known->second
               : plans.emplace(key, make_plan(handle, key, workspace_bytes)).first->second;
  }
};

StridedGemm::StridedGemm(CUstream_st* stream, int64_t workspace_bytes)
    : stream_(stream), workspace_bytes_(workspace_bytes) {}
StridedGemm::~StridedGemm() = default;

void StridedGemm::run(const StridedGemmCall& call, void* workspace) {
  check_call(call);
  if (call.count == 0 || call.d.first.elements() == 0) return;
  if (library_ == nullptr) library_ = std::make_unique<Library>();
  const Plan& plan = library_->plan_for(Key{.a = StridedOperand::of(call.a),
                                            .b = StridedOperand::of(call.b),
                                            .d = StridedOperand::of(call.d),
                                            .transpose_a = call.transpose_a,
                                            .transpose_b = call.transpose_b,
                                            .count = call.count},
                                        workspace_bytes_);
  const float beta = 0.0f;
  check_cublas(
      cublasLtMatmul(library_->handle.get(), plan.description.get(), &call.alpha, call.b.first.data,
                     plan.b.get(), call.a.first.data, plan.a.get(), &beta, call.d.first.data,
                     plan.d.get(), call.d.first.data, plan.d.get(), &plan.algorithm, workspace,
                     static_cast<size_t>(workspace_bytes_), stream_),
      "cublasLtMatmul");
}

}  // namespace mpt
