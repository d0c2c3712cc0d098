#include "device/cuda/strided_products.h"

#include <algorithm>
#include <compare>
#include <map>

#include <cublasLt.h>

#include "device/cuda/cuda_error.h"

namespace mpt {
namespace {

// Row-major D = op(A) op(B) is column-major D^T = op(B)^T op(A)^T: cuBLASLt's first operand is our b, and
// every matrix is described with its columns as rows.
struct Side {
  DType dtype;
  int64_t rows, cols, stride, step;
  uint32_t alignment;  // bytes
  auto operator<=>(const Side&) const = default;
};

struct Key {
  Side a, b, d;
  Transpose transpose_a, transpose_b;
  int64_t count;
  auto operator<=>(const Key&) const = default;
};

// The largest power of two that divides where every matrix and every row starts, up to the widest access of
// any kernel, so that heads of one tensor share their algorithm. cuBLASLt takes 256 for granted unless told
// otherwise.
constexpr uint64_t kWidestAccess = 16;  // bytes
uint32_t alignment_of(const StridedBatch& batch) {
  const int64_t size = size_of(batch.first.dtype);
  const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(batch.first.data));
  const auto distances = static_cast<uint64_t>((batch.first.stride | batch.step) * size);
  const uint64_t all = address | distances | kWidestAccess;
  return static_cast<uint32_t>(all & (~all + 1));
}

Side side_of(const StridedBatch& batch) {
  const Tensor& t = batch.first;
  return {t.dtype, t.rows, t.cols, t.stride, batch.step, alignment_of(batch)};
}

cudaDataType_t type_of(DType dtype) { return dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF; }

cublasOperation_t operation_of(Transpose transpose) {
  return transpose == Transpose::kNo ? CUBLAS_OP_N : CUBLAS_OP_T;
}

class Layout {
 public:
  Layout(const Side& side, int64_t count) {
    check_cublas(cublasLtMatrixLayoutCreate(&layout_, type_of(side.dtype), static_cast<uint64_t>(side.cols),
                                            static_cast<uint64_t>(side.rows), side.stride),
                 "cublasLtMatrixLayoutCreate");
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(count));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, side.step);
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  operator cublasLtMatrixLayout_t() const { return layout_; }  // NOLINT: stands for the library's own

 private:
  template <class T>
  void set(cublasLtMatrixLayoutAttribute_t attribute, T value) {
    check_cublas(cublasLtMatrixLayoutSetAttribute(layout_, attribute, &value, sizeof value),
                 "cublasLtMatrixLayoutSetAttribute");
  }
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class Preference {
 public:
  Preference() {
    check_cublas(cublasLtMatmulPreferenceCreate(&preference_), "cublasLtMatmulPreferenceCreate");
  }
  ~Preference() { cublasLtMatmulPreferenceDestroy(preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  operator cublasLtMatmulPreference_t() const { return preference_; }  // NOLINT: as above
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    check_cublas(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
  }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

// Descriptors and algorithm of one shape.
class Plan {
 public:
  Plan(cublasLtHandle_t handle, const Key& key)
      : a_(key.a, key.count), b_(key.b, key.count), d_(key.d, key.count) {
    check_cublas(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, operation_of(key.transpose_b));
    set(CUBLASLT_MATMUL_DESC_TRANSB, operation_of(key.transpose_a));
    Preference preference;
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                   static_cast<uint64_t>(StridedProducts::kWorkspaceBytes));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b.alignment);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a.alignment);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.d.alignment);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.d.alignment);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const auto status =
        cublasLtMatmulAlgoGetHeuristic(handle, product_, b_, a_, d_, d_, preference, 1, &found, &count);
    const auto call = fmt::format(
        "cublasLtMatmulAlgoGetHeuristic for {} products [{},{}] x [{},{}] of {} to {}", key.count, key.a.rows,
        key.a.cols, key.b.rows, key.b.cols, name_of(key.a.dtype), name_of(key.d.dtype));
    check_cublas(status, call);
    check_cublas(count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : found.state, call);
    algorithm_ = found.algo;
  }
  ~Plan() { cublasLtMatmulDescDestroy(product_); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void run(cublasLtHandle_t handle, const StridedProductCall& call, void* workspace,
           cudaStream_t stream) const {
    const float beta = 0.0f;
    check_cublas(cublasLtMatmul(handle, product_, &call.alpha, call.b.first.data, b_, call.a.first.data, a_,
                                &beta, call.d.first.data, d_, call.d.first.data, d_, &algorithm_, workspace,
                                StridedProducts::kWorkspaceBytes, stream),
                 "cublasLtMatmul");
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check_cublas(cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
  }
  Layout a_, b_, d_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

void check_batches(const StridedProductCall& call) {
  const Tensor &a = call.a.first, &b = call.b.first, &d = call.d.first;
  const GemmCall one{
      .a = a, .b = b, .d = d, .transpose_a = call.transpose_a, .transpose_b = call.transpose_b};
  check_shapes(one);
  const auto is_float = [](DType type) { return type == DType::kF32 || type == DType::kBF16; };
  check(is_float(a.dtype) && a.dtype == b.dtype && is_float(d.dtype), "products of {} and {} to {}",
        name_of(a.dtype), name_of(b.dtype), name_of(d.dtype));
}

}  // namespace

struct StridedProducts::Library {
  cublasLtHandle_t handle = nullptr;
  std::map<Key, Plan> plans;

  Library() { check_cublas(cublasLtCreate(&handle), "cublasLtCreate"); }
  ~Library() {
    plans.clear();
    cublasLtDestroy(handle);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const Plan& plan_of(const Key& key) { return plans.try_emplace(key, handle, key).first->second; }
};

StridedProducts::StridedProducts(CUstream_st* stream) : stream_(stream) {}
StridedProducts::~StridedProducts() = default;

void StridedProducts::run(const StridedProductCall& call, void* workspace) {
  check_batches(call);
  if (call.count == 0 || call.d.first.elements() == 0) return;
  if (!library_) library_ = std::make_unique<Library>();
  const Key key{.a = side_of(call.a),
                .b = side_of(call.b),
                .d = side_of(call.d),
                .transpose_a = call.transpose_a,
                .transpose_b = call.transpose_b,
                .count = call.count};
  library_->plan_of(key).run(library_->handle, call, workspace, stream_);
}

}  // namespace mpt
