#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <cublasLt.h>
#include <fmt/format.h>

#include "support/fake_cuda/fake_cuda.h"
#include "support/fake_cuda/fp8_accumulator.h"
#include "support/fake_cuda/memory.h"
#include "support/fake_cuda/runtime.h"

struct cublasLtContext {};

// Attributes by number: the value set or the default, with its size.
struct AttributeTable {
  std::map<int, std::vector<std::byte>> values;

  template <class T>
  void define(int attribute, T value) {
    std::vector<std::byte> bytes(sizeof value);
    memcpy(bytes.data(), &value, sizeof value);
    values[attribute] = std::move(bytes);
  }
  template <class T>
  [[nodiscard]] T get(int attribute) const {
    T value;
    memcpy(&value, values.at(attribute).data(), sizeof value);
    return value;
  }
  cublasStatus_t set(int attribute, const void* value, size_t bytes);
  cublasStatus_t read(int attribute, void* value, size_t bytes, size_t* written) const;
};

struct cublasLtMatmulDescOpaque_t {
  AttributeTable table;
};
struct cublasLtMatrixLayoutOpaque_t {
  AttributeTable table;
};
struct cublasLtMatmulPreferenceOpaque_t {
  AttributeTable table;
};

namespace {

using fake_cuda::detail::device_memory;

std::string& latest_reason() {
  static std::string the;
  return the;
}

cublasStatus_t refuse(cublasStatus_t status, std::string why) {
  latest_reason() = std::move(why);
  return status;
}

constexpr uint64_t kAlgorithmMark = 0x66616b65'6c743031;
constexpr uint32_t kMostAlignment = 16;  // largest used by any algorithm

struct Matrix {
  cudaDataType_t type;
  cublasLtOrder_t order;
  int64_t rows, cols, leading, batch_offset;
  int32_t batches;

  [[nodiscard]] int64_t at(int64_t row, int64_t col) const {
    return order == CUBLASLT_ORDER_COL ? row + col * leading : row * leading + col;
  }
  [[nodiscard]] int64_t elements() const {
    return rows * cols == 0 ? 0 : at(rows - 1, cols - 1) + 1;
  }
};

bool is_fp8(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
size_t size_of(cudaDataType_t type) {
  if (is_fp8(type)) return 1;
  return type == CUDA_R_32F ? 4 : type == CUDA_R_64F ? 8 : 2;
}
const char* name_of(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_32F:
      return "fp32";
    case CUDA_R_64F:
      return "fp64";
    case CUDA_R_16F:
      return "fp16";
    case CUDA_R_16BF:
      return "bf16";
    case CUDA_R_8F_E4M3:
      return "e4m3";
    case CUDA_R_8F_E5M2:
      return "e5m2";
  }
  return "?";
}

Matrix matrix_of(cublasLtMatrixLayout_t layout) {
  const AttributeTable& t = layout->table;
  return {.type = t.get<cudaDataType_t>(CUBLASLT_MATRIX_LAYOUT_TYPE),
          .order = t.get<cublasLtOrder_t>(CUBLASLT_MATRIX_LAYOUT_ORDER),
          .rows = int64_t(t.get<uint64_t>(CUBLASLT_MATRIX_LAYOUT_ROWS)),
          .cols = int64_t(t.get<uint64_t>(CUBLASLT_MATRIX_LAYOUT_COLS)),
          .leading = t.get<int64_t>(CUBLASLT_MATRIX_LAYOUT_LD),
          .batch_offset = t.get<int64_t>(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET),
          .batches = t.get<int32_t>(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)};
}

struct Problem {
  cublasComputeType_t compute;
  cudaDataType_t scale_type;
  cublasLtPointerMode_t pointer_mode;
  cublasOperation_t op_a, op_b;
  cublasLtEpilogue_t epilogue;
  const float *scale_a, *scale_b;
  fake_cuda::detail::Promotion promotion;  // of FP8 sums
  Matrix a, b, c, d;

  [[nodiscard]] int64_t m() const { return op_a == CUBLAS_OP_N ? a.rows : a.cols; }
  [[nodiscard]] int64_t k() const { return op_a == CUBLAS_OP_N ? a.cols : a.rows; }
  [[nodiscard]] int64_t n() const { return op_b == CUBLAS_OP_N ? b.cols : b.rows; }
  [[nodiscard]] int64_t k_of_b() const { return op_b == CUBLAS_OP_N ? b.rows : b.cols; }
  // Hash of everything by which an algorithm is chosen, except pointers.
  [[nodiscard]] uint64_t hash() const;
};

uint64_t Problem::hash() const {
  uint64_t h = 14695981039346656037u;
  const auto mix = [&h](int64_t value) { h = (h ^ uint64_t(value)) * 1099511628211u; };
  mix(compute), mix(scale_type), mix(op_a), mix(op_b), mix(epilogue), mix(int64_t(promotion));
  for (const Matrix* const x : {&a, &b, &c, &d}) {
    mix(x->type), mix(x->order), mix(x->rows), mix(x->cols);
    mix(x->leading), mix(x->batch_offset), mix(x->batches);
  }
  return h;
}

Problem problem_of(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                   cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  const AttributeTable& t = description->table;
  return {.compute = t.get<cublasComputeType_t>(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE),
          .scale_type = t.get<cudaDataType_t>(CUBLASLT_MATMUL_DESC_SCALE_TYPE),
          .pointer_mode = t.get<cublasLtPointerMode_t>(CUBLASLT_MATMUL_DESC_POINTER_MODE),
          .op_a = t.get<cublasOperation_t>(CUBLASLT_MATMUL_DESC_TRANSA),
          .op_b = t.get<cublasOperation_t>(CUBLASLT_MATMUL_DESC_TRANSB),
          .epilogue = t.get<cublasLtEpilogue_t>(CUBLASLT_MATMUL_DESC_EPILOGUE),
          .scale_a = t.get<const float*>(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER),
          .scale_b = t.get<const float*>(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER),
          .promotion = t.get<int8_t>(CUBLASLT_MATMUL_DESC_FAST_ACCUM) != 0
                           ? fake_cuda::detail::Promotion::kNever
                           : fake_cuda::detail::Promotion::kOften,
          .a = matrix_of(a),
          .b = matrix_of(b),
          .c = matrix_of(c),
          .d = matrix_of(d)};
}

// --- refusals ------------------------------------------------------------------------------------
cublasStatus_t check_layout(const Matrix& x, const char* name) {
  const int64_t least = x.order == CUBLASLT_ORDER_COL ? x.rows : x.cols;
  if (x.leading < least || x.rows <= 0 || x.cols <= 0 || x.batches < 1)
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  fmt::format("{} is {}x{} with leading dimension {} in {} batches", name, x.rows,
                              x.cols, x.leading, x.batches));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_sizes(const Problem& p) {
  const Matrix* const all[] = {&p.a, &p.b, &p.c, &p.d};
  const char* const names[] = {"A", "B", "C", "D"};
  for (int i = 0; i < 4; ++i) {
    if (const auto status = check_layout(*all[i], names[i])) return status;
    if (all[i]->batches != p.d.batches)
      return refuse(
          CUBLAS_STATUS_INVALID_VALUE,
          fmt::format("{} has {} batches, D has {}", names[i], all[i]->batches, p.d.batches));
  }
  const bool agree = p.k() == p.k_of_b() && p.d.rows == p.m() && p.d.cols == p.n() &&
                     p.c.rows == p.m() && p.c.cols == p.n();
  if (!agree)
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  fmt::format("op(A) {}x{}, op(B) {}x{}, C {}x{}, D {}x{}", p.m(), p.k(),
                              p.k_of_b(), p.n(), p.c.rows, p.c.cols, p.d.rows, p.d.cols));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_types(const Problem& p) {
  const cudaDataType_t a = p.a.type, b = p.b.type, c = p.c.type, d = p.d.type;
  const bool plain =
      (a == CUDA_R_32F && b == CUDA_R_32F && d == CUDA_R_32F) ||
      (a == CUDA_R_16BF && b == CUDA_R_16BF && (d == CUDA_R_16BF || d == CUDA_R_32F));
  const bool fp8 = is_fp8(a) && is_fp8(b) && (a == CUDA_R_8F_E4M3 || b == CUDA_R_8F_E4M3) &&
                   (d == CUDA_R_16BF || d == CUDA_R_32F);
  if ((!plain && !fp8) || c != d)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, fmt::format("A {}, B {}, C {}, D {}", name_of(a),
                                                           name_of(b), name_of(c), name_of(d)));
  const bool computes = p.compute == CUBLAS_COMPUTE_32F ||
                        p.compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                        (p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a == CUDA_R_32F);
  if (!computes || p.scale_type != CUDA_R_32F || (fp8 && p.compute != CUBLAS_COMPUTE_32F))
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED,
                  fmt::format("compute type {} with scale type {} for {}", int(p.compute),
                              name_of(p.scale_type), name_of(a)));
  if (p.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the fake has no epilogues");
  if (!fp8 && (p.scale_a != nullptr || p.scale_b != nullptr))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "scale pointers of operands that are not FP8");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_fp8(const Problem& p) {
  if (!is_fp8(p.a.type)) return CUBLAS_STATUS_SUCCESS;
  if (p.op_a != CUBLAS_OP_T || p.op_b != CUBLAS_OP_N || p.a.order != CUBLASLT_ORDER_COL ||
      p.b.order != CUBLASLT_ORDER_COL || p.d.order != CUBLASLT_ORDER_COL)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "FP8 takes A transposed, B not, all column-major");
  for (const int64_t size :
       {p.m(), p.n(), p.k(), p.a.leading, p.b.leading, p.a.batch_offset, p.b.batch_offset})
    if (size % 16 != 0)
      return refuse(
          CUBLAS_STATUS_NOT_SUPPORTED,
          fmt::format("FP8 with {}, not a multiple of 16, among m {}, n {}, k {}, ld {} and {}",
                      size, p.m(), p.n(), p.k(), p.a.leading, p.b.leading));
  for (const Matrix* const x : {&p.c, &p.d})
    if (x->leading * int64_t(size_of(x->type)) % 16 != 0)
      return refuse(
          CUBLAS_STATUS_NOT_SUPPORTED,
          fmt::format("FP8 into a leading dimension of {} {}", x->leading, name_of(x->type)));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_problem(const Problem& p) {
  if (const auto status = check_sizes(p)) return status;
  if (const auto status = check_types(p)) return status;
  return check_fp8(p);
}

// --- algorithms: three that differ in workspace --------------------------------------------------
struct Algorithm {
  uint64_t problem;
  uint64_t workspace;
  uint64_t number;
  uint32_t alignment[4];  // of A, B, C and D
};

cublasLtMatmulAlgo_t packed(const Algorithm& x) {
  cublasLtMatmulAlgo_t algorithm{};
  algorithm.data[0] = kAlgorithmMark;
  static_assert(sizeof(Algorithm) <= 7 * sizeof(uint64_t));
  memcpy(algorithm.data + 1, &x, sizeof x);
  return algorithm;
}
bool unpack(const cublasLtMatmulAlgo_t& algorithm, Algorithm& x) {
  memcpy(&x, algorithm.data + 1, sizeof x);
  return algorithm.data[0] == kAlgorithmMark;
}
constexpr uint64_t kWorkspaces[] = {uint64_t{1} << 20, 0, uint64_t{64} << 10};

cublasStatus_t check_algorithm(const Problem& p, const cublasLtMatmulAlgo_t& opaque,
                               Algorithm& algorithm) {
  if (!unpack(opaque, algorithm))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the algorithm was never given out");
  if (algorithm.problem != p.hash())
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the algorithm was given out for another product");
  return CUBLAS_STATUS_SUCCESS;
}

// --- the GEMM ------------------------------------------------------------------------------------
double value_of_fp8(uint8_t code, int mantissa_bits, bool infinite) {
  const int exponent_bits = 7 - mantissa_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int magnitude = code & 0x7F, exponent = magnitude >> mantissa_bits;
  const int mantissa = magnitude & ((1 << mantissa_bits) - 1);
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  if (infinite && exponent == (1 << exponent_bits) - 1)
    return mantissa == 0 ? sign * INFINITY : double(NAN);
  if (!infinite && magnitude == 0x7F) return double(NAN);
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

double load(const std::byte* data, cudaDataType_t type, int64_t i) {
  switch (type) {
    case CUDA_R_8F_E4M3:
      return value_of_fp8(uint8_t(data[i]), 3, false);
    case CUDA_R_8F_E5M2:
      return value_of_fp8(uint8_t(data[i]), 2, true);
    case CUDA_R_16BF: {
      uint16_t bits = 0;
      memcpy(&bits, data + 2 * i, sizeof bits);
      return double(std::bit_cast<float>(uint32_t{bits} << 16));
    }
    default: {
      float x = 0;
      memcpy(&x, data + 4 * i, sizeof x);
      return double(x);
    }
  }
}

void store(std::byte* data, cudaDataType_t type, int64_t i, float x) {
  if (type == CUDA_R_32F) {
    memcpy(data + 4 * i, &x, sizeof x);
    return;
  }
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint16_t rounded =
      std::isnan(x) ? 0x7FFF : uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  memcpy(data + 2 * i, &rounded, sizeof rounded);
}

struct Product {
  Problem problem;
  const std::byte *a, *b, *c;
  std::byte* d;
  float alpha, beta;                        // used unless
  const float *device_alpha, *device_beta;  // these are set, in device memory
  std::byte* workspace;
  uint64_t workspace_bytes;

  void run() const;
  void run_batch(int32_t batch, float scale, float keep) const;
};

// op(X) of a batch, as rows of k values.
std::vector<double> rows_of_k(const Matrix& x, const std::byte* data, bool k_is_rows) {
  const int64_t lines = k_is_rows ? x.cols : x.rows, k = k_is_rows ? x.rows : x.cols;
  std::vector<double> values(size_t(lines * k));
  for (int64_t i = 0; i < lines; ++i)
    for (int64_t j = 0; j < k; ++j)
      values[size_t(i * k + j)] = load(data, x.type, k_is_rows ? x.at(j, i) : x.at(i, j));
  return values;
}

void Product::run() const {
  fake_cuda::detail::count_gemm();
  // The workspace's contents are lost; overwriting its start is enough to reveal a dependence on
  // it.
  constexpr size_t kTelling = size_t{64} << 10;
  if (workspace_bytes > 0) memset(workspace, 0xFF, std::min(size_t(workspace_bytes), kTelling));
  float scale = device_alpha != nullptr ? *device_alpha : alpha;
  if (problem.scale_a != nullptr) scale *= *problem.scale_a;
  if (problem.scale_b != nullptr) scale *= *problem.scale_b;
  const float keep = device_beta != nullptr ? *device_beta : beta;
  for (int32_t batch = 0; batch < problem.d.batches; ++batch) run_batch(batch, scale, keep);
}

void Product::run_batch(int32_t batch, float scale, float keep) const {
  const auto start = [batch](const Matrix& x) { return batch * x.batch_offset; };
  const auto offset = [&](const Matrix& x) { return start(x) * int64_t(size_of(x.type)); };
  const std::vector<double> left =
      rows_of_k(problem.a, a + offset(problem.a), problem.op_a != CUBLAS_OP_N);
  const std::vector<double> right =
      rows_of_k(problem.b, b + offset(problem.b), problem.op_b == CUBLAS_OP_N);
  const auto m = problem.m(), n = problem.n();
  const auto k = size_t(problem.k());
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const std::span row(left.data() + size_t(i) * k, k), col(right.data() + size_t(j) * k, k);
      const double sum = is_fp8(problem.a.type)
                             ? fake_cuda::detail::fp8_dot(row, col, problem.promotion)
                             : std::inner_product(row.begin(), row.end(), col.begin(), 0.0);
      double value = double(scale) * sum;
      if (keep != 0)
        value += double(keep) * load(c, problem.c.type, start(problem.c) + problem.c.at(i, j));
      store(d, problem.d.type, start(problem.d) + problem.d.at(i, j), float(value));
    }
}

struct QuantizedMatrix {
  const void* data;
  const Matrix& matrix;
  const char* name;
  uint32_t alignment;

  [[nodiscard]] size_t bytes() const {
    return size_t((matrix.batches - 1) * matrix.batch_offset + matrix.elements()) *
           size_of(matrix.type);
  }
};

cublasStatus_t check_operand(const QuantizedMatrix& x) {
  if (reinterpret_cast<uintptr_t>(x.data) % x.alignment != 0)
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  fmt::format("{} is not aligned to {} bytes, as its algorithm wants it", x.name,
                              x.alignment));
  if (!device_memory().holds(x.data, x.bytes()))
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  fmt::format("{} of {} bytes is not within one allocation of the GPU's memory",
                              x.name, x.bytes()));
  return CUBLAS_STATUS_SUCCESS;
}

bool overlap(const QuantizedMatrix& x, const QuantizedMatrix& y) {
  const auto* const x0 = static_cast<const std::byte*>(x.data);
  const auto* const y0 = static_cast<const std::byte*>(y.data);
  return x0 < y0 + y.bytes() && y0 < x0 + x.bytes();
}

// Operands may lie in interleaved columns of one tensor, like batches; only equal starts are
// certainly wrong.
cublasStatus_t check_operands(const QuantizedMatrix& a, const QuantizedMatrix& b,
                              const QuantizedMatrix& c, const QuantizedMatrix& d) {
  for (const QuantizedMatrix* const x : {&a, &b, &c, &d})
    if (const auto status = check_operand(*x)) return status;
  if (a.data == d.data || b.data == d.data)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "D overlaps an operand");
  const bool in_place = c.data == d.data && c.matrix.leading == d.matrix.leading &&
                        c.matrix.order == d.matrix.order &&
                        c.matrix.batch_offset == d.matrix.batch_offset;
  if (!in_place && c.data == d.data && overlap(c, d))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "C and D overlap in different layouts");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_workspace(const Algorithm& algorithm, const void* workspace, size_t bytes) {
  if (algorithm.workspace == 0) return CUBLAS_STATUS_SUCCESS;
  if (workspace == nullptr || bytes < algorithm.workspace)
    return refuse(
        CUBLAS_STATUS_INVALID_VALUE,
        fmt::format("a workspace of {} bytes, the algorithm takes {}", bytes, algorithm.workspace));
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the workspace is not aligned to 256 bytes");
  if (!device_memory().holds(workspace, bytes))
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  "the workspace is not within one allocation of the GPU's memory");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_scale(const float* scale, const char* name) {
  if (reinterpret_cast<uintptr_t>(scale) % 16 != 0)  // like 13.1 on an H200
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED,
                  fmt::format("the scale of {} is not aligned to 16 bytes", name));
  if (scale == nullptr || device_memory().holds(scale, sizeof *scale)) return CUBLAS_STATUS_SUCCESS;
  return refuse(CUBLAS_STATUS_INVALID_VALUE,
                fmt::format("the scale of {} is not in the GPU's memory", name));
}

}  // namespace

cublasStatus_t AttributeTable::set(int attribute, const void* value, size_t bytes) {
  const auto it = values.find(attribute);
  if (it == values.end())
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  fmt::format("the fake has no attribute {}", attribute));
  if (value == nullptr || it->second.size() != bytes)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, fmt::format("attribute {} has {} bytes, not {}",
                                                           attribute, it->second.size(), bytes));
  memcpy(it->second.data(), value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t AttributeTable::read(int attribute, void* value, size_t bytes,
                                    size_t* written) const {
  const auto it = values.find(attribute);
  if (it == values.end() || bytes < it->second.size())
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  fmt::format("attribute {} does not fit {} bytes", attribute, bytes));
  memcpy(value, it->second.data(), it->second.size());
  if (written != nullptr) *written = it->second.size();
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : latest_reason().c_str();
}
size_t cublasLtGetVersion() { return 130000; }
size_t cublasLtGetCudartVersion() { return CUDART_VERSION; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  *description = new cublasLtMatmulDescOpaque_t;
  AttributeTable& t = (*description)->table;
  t.define(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, compute);
  t.define(CUBLASLT_MATMUL_DESC_SCALE_TYPE, scale);
  t.define(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_HOST);
  t.define(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N);
  t.define(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  t.define(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  t.define(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, int32_t{0});
  t.define<const float*>(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, nullptr);
  t.define<const float*>(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, nullptr);
  t.define(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{0});
  t.define(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
  t.define(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete description;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  return description->table.set(attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, void* value,
                                              size_t bytes, size_t* written) {
  return description->table.read(attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t leading) {
  *layout = new cublasLtMatrixLayoutOpaque_t;
  AttributeTable& t = (*layout)->table;
  t.define(CUBLASLT_MATRIX_LAYOUT_TYPE, type);
  t.define(CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_COL);
  t.define(CUBLASLT_MATRIX_LAYOUT_ROWS, rows);
  t.define(CUBLASLT_MATRIX_LAYOUT_COLS, cols);
  t.define(CUBLASLT_MATRIX_LAYOUT_LD, leading);
  t.define(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{1});
  t.define(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t{0});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  return layout->table.set(attribute, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                void* value, size_t bytes, size_t* written) {
  return layout->table.read(attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  AttributeTable& t = (*preference)->table;
  t.define(CUBLASLT_MATMUL_PREF_SEARCH_MODE, uint32_t{0});
  t.define(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{0});
  t.define(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_MASK});
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    t.define(which, uint32_t{256});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  return preference->table.set(attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  const Problem p = problem_of(description, a, b, c, d);
  if (const auto status = check_problem(p)) return status;
  Algorithm algorithm{.problem = p.hash(), .workspace = 0, .number = 0, .alignment = {}};
  for (int i = 0; i < 4; ++i) {
    const auto declared =
        preference->table.get<uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i);
    algorithm.alignment[i] = std::min(declared, kMostAlignment);
    if (is_fp8(p.a.type) && declared < kMostAlignment)
      return refuse(
          CUBLAS_STATUS_NOT_SUPPORTED,
          fmt::format("FP8 products take operands aligned to 16 bytes, the preference says {}",
                      declared));
  }
  const auto most = preference->table.get<uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  for (const uint64_t workspace : kWorkspaces) {
    if (workspace > most || *found == wanted) continue;
    algorithm.workspace = workspace;
    results[*found] = {.algo = packed(algorithm),
                       .workspaceSize = workspace,
                       .state = CUBLAS_STATUS_SUCCESS,
                       .wavesCount = 1.0f,
                       .reserved = {}};
    ++*found;
    ++algorithm.number;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t /*handle*/,
                                       cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* opaque,
                                       cublasLtMatmulHeuristicResult_t* result) {
  const Problem p = problem_of(description, a, b, c, d);
  if (const auto status = check_problem(p)) return status;
  Algorithm algorithm{};
  if (const auto status = check_algorithm(p, *opaque, algorithm)) return status;
  *result = {.algo = *opaque,
             .workspaceSize = algorithm.workspace,
             .state = CUBLAS_STATUS_SUCCESS,
             .wavesCount = 1.0f,
             .reserved = {}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* opaque,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, size_t bytes, size_t* written) {
  Algorithm algorithm{};
  if (!unpack(*opaque, algorithm) || bytes < sizeof(int32_t))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "no algorithm, or no room for its attribute");
  const int32_t answer = attribute == CUBLASLT_ALGO_CONFIG_ID ? int32_t(algorithm.number) : 1;
  memcpy(value, &answer, sizeof answer);
  if (written != nullptr) *written = sizeof answer;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* opaque,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr || description == nullptr || alpha == nullptr || beta == nullptr ||
      c == nullptr)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a null argument");
  const Problem p = problem_of(description, a_layout, b_layout, c_layout, d_layout);
  if (const auto status = check_problem(p)) return status;
  const uint32_t least = is_fp8(p.a.type) ? 16 : 1;
  Algorithm algorithm{
      .problem = p.hash(), .workspace = 0, .number = 0, .alignment = {least, least, least, least}};
  if (opaque != nullptr)
    if (const auto status = check_algorithm(p, *opaque, algorithm)) return status;
  const auto aligned = [&](int i, const Matrix& x) {
    return std::max(algorithm.alignment[i], uint32_t(size_of(x.type)));
  };
  if (const auto status =
          check_operands({a, p.a, "A", aligned(0, p.a)}, {b, p.b, "B", aligned(1, p.b)},
                         {c, p.c, "C", aligned(2, p.c)}, {d, p.d, "D", aligned(3, p.d)}))
    return status;
  if (const auto status = check_workspace(algorithm, workspace, workspace_bytes)) return status;
  if (const auto status = check_scale(p.scale_a, "A")) return status;
  if (const auto status = check_scale(p.scale_b, "B")) return status;
  Product product{.problem = p,
                  .a = static_cast<const std::byte*>(a),
                  .b = static_cast<const std::byte*>(b),
                  .c = static_cast<const std::byte*>(c),
                  .d = static_cast<std::byte*>(d),
                  .alpha = 0,
                  .beta = 0,
                  .device_alpha = nullptr,
                  .device_beta = nullptr,
                  .workspace = static_cast<std::byte*>(workspace),
                  .workspace_bytes = algorithm.workspace};
  if (p.pointer_mode == CUBLASLT_POINTER_MODE_HOST) {  // read now, also for a graph
    product.alpha = *static_cast<const float*>(alpha);
    product.beta = *static_cast<const float*>(beta);
  } else {
    product.device_alpha = static_cast<const float*>(alpha);
    product.device_beta = static_cast<const float*>(beta);
  }
  const cudaError_t error =
      fake_cuda::detail::enqueue(stream, [product]() -> std::optional<std::string> {
        product.run();
        return std::nullopt;
      });
  if (error == cudaSuccess) return CUBLAS_STATUS_SUCCESS;
  return refuse(CUBLAS_STATUS_EXECUTION_FAILED, cudaGetErrorString(error));
}
