// The fake cuBLASLt: GEMMs against explicit sums, and the restrictions of Hopper.
#include <vector>

#include <cublasLt.h>

#include "cuda/gpu.h"
#include "support/draws.h"

namespace mpt::test {
namespace {

struct Side {
  cudaDataType_t type = CUDA_R_32F;
  uint64_t rows = 0, cols = 0;
  int64_t leading = 0;
  int64_t batch_offset = 0;
};

// One GEMM by descriptors that a test may corrupt before the call.
struct Call {
  cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  Side a, b, d;
  int32_t batches = 1;
  const void* a_data = nullptr;
  const void* b_data = nullptr;
  void* d_data = nullptr;
  float alpha = 1, beta = 0;
  const float *scale_a = nullptr, *scale_b = nullptr;
  int8_t fast = 0;
  uint64_t most_workspace = 1 << 20;
  uint32_t alignment = 16;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
};

class FakeCublasLt : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    workspace_ = gpu_.allocator().bytes(kScratchMemory, 1 << 20);
    cublasLtCreate(&handle_);
  }
  void TearDown() override { cublasLtDestroy(handle_); }

  // Runs the first algorithm of the heuristic; returns the first status other than success.
  cublasStatus_t run(const Call& c) {
    const Described x(c);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, x.description, x.a, x.b, x.d, x.d, x.preference, 1, &result, &found);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    EXPECT_EQ(found, 1);
    return cublasLtMatmul(handle_, x.description, &c.alpha, c.a_data, x.a, c.b_data, x.b, &c.beta,
                          c.d_data, x.d, c.d_data, x.d, &result.algo, c.workspace,
                          c.workspace_bytes, gpu_.stream());
  }
  template <class T>
  T* device_array(const std::vector<T>& values) {
    auto* const data =
        reinterpret_cast<T*>(gpu_.allocator().bytes({"data"}, int64_t(values.size() * sizeof(T))));
    gpu_.write(data, values.data(), int64_t(values.size() * sizeof(T)));
    return data;
  }
  std::vector<float> floats(const void* data, size_t count) {
    std::vector<float> values(count);
    gpu_.read(values.data(), data, int64_t(count * sizeof(float)));
    return values;
  }
  // Valid FP8: D [m,n] = A^T [m,k] B [k,n] into fp32, codes of 1 everywhere.
  Call fp8_call(uint64_t m = 32, uint64_t n = 16, uint64_t k = 48) {
    const std::vector<uint8_t> ones(m * k + n * k, 0x38);
    return {.op_a = CUBLAS_OP_T,
            .a = {.type = CUDA_R_8F_E4M3, .rows = k, .cols = m, .leading = int64_t(k)},
            .b = {.type = CUDA_R_8F_E4M3, .rows = k, .cols = n, .leading = int64_t(k)},
            .d = {.rows = m, .cols = n, .leading = int64_t(m)},
            .a_data = device_array(ones),
            .b_data = device_array(ones),
            .d_data = device_array(std::vector<float>(m * n)),
            .workspace = workspace_,
            .workspace_bytes = 1 << 20};
  }

  Gpu gpu_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;

 private:
  struct Described {
    explicit Described(const Call& c) {
      cublasLtMatmulDescCreate(&description, c.compute, CUDA_R_32F);
      set(CUBLASLT_MATMUL_DESC_TRANSA, c.op_a), set(CUBLASLT_MATMUL_DESC_TRANSB, c.op_b);
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, c.scale_a),
          set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, c.scale_b);
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, c.fast);
      a = layout(c.a, c.batches), b = layout(c.b, c.batches), d = layout(c.d, c.batches);
      cublasLtMatmulPreferenceCreate(&preference);
      prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, c.most_workspace);
      for (const auto which :
           {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
        prefer(which, c.alignment);
    }
    ~Described() {
      cublasLtMatmulDescDestroy(description);
      for (const cublasLtMatrixLayout_t one : {a, b, d}) cublasLtMatrixLayoutDestroy(one);
      cublasLtMatmulPreferenceDestroy(preference);
    }
    Described(const Described&) = delete;
    Described& operator=(const Described&) = delete;

    void set(cublasLtMatmulDescAttributes_t attribute, auto value) const {
      EXPECT_EQ(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value),
                CUBLAS_STATUS_SUCCESS);
    }
    void prefer(cublasLtMatmulPreferenceAttributes_t attribute, auto value) const {
      EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
                CUBLAS_STATUS_SUCCESS);
    }
    static cublasLtMatrixLayout_t layout(const Side& side, int32_t batches) {
      cublasLtMatrixLayout_t made = nullptr;
      cublasLtMatrixLayoutCreate(&made, side.type, side.rows, side.cols, side.leading);
      cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches,
                                       sizeof batches);
      cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                       &side.batch_offset, sizeof side.batch_offset);
      return made;
    }

    cublasLtMatmulDesc_t description = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
  };
};

// Small whole numbers, whose sums are exact.
std::vector<float> whole_numbers(size_t count, uint64_t seed) {
  Draws draws(seed);
  std::vector<float> values(count);
  for (float& value : values) value = float(draws.index(17) - 8);
  return values;
}

TEST_F(FakeCublasLt, MultipliesInEveryTransposeAndBatchInPlace) {
  constexpr int64_t m = 3, n = 4, k = 5, batches = 2, kLeading = 7, kOffset = 40;
  for (const auto op_a : {CUBLAS_OP_N, CUBLAS_OP_T})
    for (const auto op_b : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      const std::vector<float> a = whole_numbers(80, 1), b = whole_numbers(80, 2),
                               c = whole_numbers(80, 3);
      const auto side = [&](cublasOperation_t op, int64_t rows, int64_t cols) {
        if (op == CUBLAS_OP_T) std::swap(rows, cols);
        return Side{.rows = uint64_t(rows),
                    .cols = uint64_t(cols),
                    .leading = kLeading,
                    .batch_offset = kOffset};
      };
      float* const d = device_array(c);
      ASSERT_EQ(run({.op_a = op_a,
                     .op_b = op_b,
                     .a = side(op_a, m, k),
                     .b = side(op_b, k, n),
                     .d = side(CUBLAS_OP_N, m, n),
                     .batches = batches,
                     .a_data = device_array(a),
                     .b_data = device_array(b),
                     .d_data = d,
                     .alpha = 2,
                     .beta = 3,
                     .workspace = workspace_,
                     .workspace_bytes = 1 << 20}),
                CUBLAS_STATUS_SUCCESS)
          << cublasLtGetStatusString(CUBLAS_STATUS_INVALID_VALUE);
      std::vector<float> expected = c;
      for (int64_t batch = 0; batch < batches; ++batch)
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            float sum = 0;
            for (int64_t l = 0; l < k; ++l)
              sum += a[size_t(kOffset * batch +
                              (op_a == CUBLAS_OP_N ? i + l * kLeading : l + i * kLeading))] *
                     b[size_t(kOffset * batch +
                              (op_b == CUBLAS_OP_N ? l + j * kLeading : j + l * kLeading))];
            float& value = expected[size_t(kOffset * batch + i + j * kLeading)];
            value = 2 * sum + 3 * value;
          }
      EXPECT_EQ(floats(d, 80), expected);
    }
}

TEST_F(FakeCublasLt, Fp8CodesStandForTheirValuesTimesTheirScales) {
  Call call = fp8_call(16, 16, 16);
  std::vector<uint8_t> a(256), b(256);  // the identity, and every finite code of either format
  for (size_t i = 0; i < 16; ++i) a[17 * i] = 0x38;
  for (size_t i = 0; i < 256; ++i) b[i] = uint8_t(i);
  call.a_data = device_array(a), call.b_data = device_array(b);
  call.b.type = CUDA_R_8F_E5M2;
  b[0x7C] = b[0x7D] = b[0x7E] = b[0x7F] = b[0xFC] = b[0xFD] = b[0xFE] = b[0xFF] = 0;
  call.b_data = device_array(b);
  call.scale_a = device_array(std::vector<float>{2}),
  call.scale_b = device_array(std::vector<float>{4});
  ASSERT_EQ(run(call), CUBLAS_STATUS_SUCCESS);
  const std::vector<float> d = floats(call.d_data, 256);
  EXPECT_EQ(d[0x3C], 8.0f);
  EXPECT_EQ(d[0x7B], 8 * 57344.0f);
  EXPECT_EQ(d[0x01], 8 * 0x1p-16f);
  EXPECT_EQ(d[0x83], 8 * -0x1.8p-15f);
  for (size_t i = 0; i < 256; ++i) b[i] = (i & 0x7F) == 0x7F ? uint8_t(0) : uint8_t(i);
  call.b.type = CUDA_R_8F_E4M3, call.b_data = device_array(b);
  ASSERT_EQ(run(call), CUBLAS_STATUS_SUCCESS);
  const std::vector<float> e = floats(call.d_data, 256);
  EXPECT_EQ(e[0x38], 8.0f);
  EXPECT_EQ(e[0x7E], 8 * 448.0f);
  EXPECT_EQ(e[0x01], 8 * 0x1p-9f);
  EXPECT_EQ(e[0x8A], 8 * -0x1.4p-6f);
}

// 448^2 and k - 1 ones: next to the first, nothing below 16 is kept, in its instruction and in
// later ones. If sums are promoted, the ones after the first 128 terms count.
TEST_F(FakeCublasLt, Fp8SumsLoseWhatTheTensorCoreLoses) {
  for (const uint64_t k : {16, 48, 128, 256}) {
    Call call = fp8_call(16, 16, k);
    std::vector<uint8_t> codes(16 * k, 0x38);
    for (size_t line = 0; line < 16; ++line) codes[line * k] = 0x7E;
    call.a_data = device_array(codes), call.b_data = device_array(codes);
    for (const int8_t fast : {0, 1}) {
      call.fast = fast;
      ASSERT_EQ(run(call), CUBLAS_STATUS_SUCCESS);
      const float ones = fast == 0 && k > 128 ? float(k - 128) : 0.0f;
      EXPECT_EQ(floats(call.d_data, 256), std::vector<float>(256, 448.0f * 448.0f + ones)) << k;
    }
  }
}

TEST_F(FakeCublasLt, RefusesTheFp8ThatHopperRefuses) {
  EXPECT_EQ(run(fp8_call()), CUBLAS_STATUS_SUCCESS);
  const auto expect_refused = [&](const char* what, auto spoil) {
    Call call = fp8_call();
    spoil(call);
    EXPECT_NE(run(call), CUBLAS_STATUS_SUCCESS) << what;
  };
  expect_refused("A not transposed",
                 [](Call& c) { c.op_a = CUBLAS_OP_N, c.a.rows = 32, c.a.cols = 48; });
  expect_refused("B transposed", [](Call& c) {
    c.op_b = CUBLAS_OP_T, c.b = {CUDA_R_8F_E4M3, 16, 48, 16, 0};
  });
  expect_refused("e5m2 with e5m2", [](Call& c) { c.a.type = c.b.type = CUDA_R_8F_E5M2; });
  expect_refused("e4m3 with bf16", [](Call& c) { c.b.type = CUDA_R_16BF; });
  expect_refused("tf32", [](Call& c) { c.compute = CUBLAS_COMPUTE_32F_FAST_TF32; });
  expect_refused("m = 24", [](Call& c) { c.a.cols = c.d.rows = 24; });
  expect_refused("n = 8", [](Call& c) { c.b.cols = c.d.cols = 8; });
  expect_refused("k = 40", [](Call& c) { c.a.rows = c.b.rows = 40; });
  expect_refused("ld 56", [](Call& c) { c.a.cols = c.d.rows = 16, c.a.leading = 56; });
  expect_refused("alignment of 8", [](Call& c) { c.alignment = 8; });
  expect_refused("A one off", [](Call& c) { c.a_data = static_cast<const char*>(c.a_data) + 1; });
  expect_refused("a scale in host memory", [](Call& c) { c.scale_a = &c.alpha; });
  const float* const scales = device_array(std::vector<float>{1, 1});
  expect_refused("a scale at an address that 16 does not divide",
                 [&](Call& c) { c.scale_a = scales + 1; });
}

TEST_F(FakeCublasLt, RefusesWhatDoesNotFit) {
  const auto valid = [&] {
    return Call{.a = {.rows = 4, .cols = 4, .leading = 4},
                .b = {.rows = 4, .cols = 4, .leading = 4},
                .d = {.rows = 4, .cols = 4, .leading = 4},
                .a_data = device_array(std::vector<float>(16)),
                .b_data = device_array(std::vector<float>(16)),
                .d_data = device_array(std::vector<float>(16)),
                .workspace = workspace_,
                .workspace_bytes = 1 << 20};
  };
  EXPECT_EQ(run(valid()), CUBLAS_STATUS_SUCCESS);
  const std::vector<float> host(16);
  const auto expect_refused = [&](const char* what, auto spoil) {
    Call call = valid();
    spoil(call);
    EXPECT_NE(run(call), CUBLAS_STATUS_SUCCESS) << what;
  };
  expect_refused("sizes", [](Call& c) { c.b.rows = 3; });
  expect_refused("leading dimension", [](Call& c) { c.a.leading = 3; });
  expect_refused("beyond the allocation", [](Call& c) { c.a.leading = 64; });
  expect_refused("types", [](Call& c) { c.b.type = CUDA_R_16BF; });
  expect_refused("host memory", [&](Call& c) { c.a_data = host.data(); });
  expect_refused("D over A", [](Call& c) { c.d_data = const_cast<void*>(c.a_data); });
  expect_refused("workspace too small", [](Call& c) { c.workspace_bytes = 1000; });
  expect_refused("workspace misaligned", [](Call& c) {
    c.workspace = static_cast<char*>(c.workspace) + 64, c.workspace_bytes -= 64;
  });
  expect_refused("no workspace", [](Call& c) { c.workspace = nullptr; });
  expect_refused("less aligned than was said", [](Call& c) {
    c.b_data = static_cast<const float*>(c.b_data) + 1, c.b.cols = c.d.cols = 3;
  });
  expect_refused("scales of fp32",
                 [&](Call& c) { c.scale_a = static_cast<const float*>(c.a_data); });
  Call none = valid();
  none.most_workspace = 0, none.workspace = nullptr, none.workspace_bytes = 0;
  EXPECT_EQ(run(none), CUBLAS_STATUS_SUCCESS);
}

// Recorded with the numbers of the call; a replay rereads the operands.
TEST_F(FakeCublasLt, ProductsAreCaptured) {
  const Call call = fp8_call(16, 16, 16);
  check_cuda(cudaStreamBeginCapture(gpu_.stream(), cudaStreamCaptureModeGlobal),
             "cudaStreamBeginCapture");
  ASSERT_EQ(run(call), CUBLAS_STATUS_SUCCESS);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaStreamEndCapture(gpu_.stream(), &graph), "cudaStreamEndCapture");
  check_cuda(cudaGraphInstantiate(&executable, graph), "cudaGraphInstantiate");
  EXPECT_EQ(fake_cuda::counters().gemms, 0);
  check_cuda(cudaGraphLaunch(executable, gpu_.stream()), "cudaGraphLaunch");
  EXPECT_EQ(floats(call.d_data, 256), std::vector<float>(256, 16.0f));
  EXPECT_EQ(fake_cuda::counters().gemms, 1);
  cudaGraphExecDestroy(executable), cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace mpt::test
