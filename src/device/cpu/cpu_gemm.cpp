#include "device/cpu/cpu_gemm.h"

#include <algorithm>
#include <limits>

#include "core/check.h"
#include "device/cpu/cblas.h"
#include "device/cpu/convert_rows.h"

namespace mpt {

CpuGemm::CpuGemm(int threads) { set_cblas_threads(threads); }

void CpuGemm::reserve(Allocator& allocator, std::span<const GemmCall> calls) {
  const auto largest = [&](auto member) {
    int64_t most = 0;
    for (const GemmCall& call : calls)
      if ((call.*member).dtype != DType::kF32) most = std::max(most, (call.*member).elements());
    return most;
  };
  a_.reserve(allocator, 4 * largest(&GemmCall::a));
  b_.reserve(allocator, 4 * largest(&GemmCall::b));
  d_.reserve(allocator, 4 * largest(&GemmCall::d));
  for (const GemmCall& call : calls) allocator.libraries_take(cblas_bytes(call.m(), call.k()));
}

namespace {

// An FP32 matrix of the operand's shape in scratch.
Tensor copy_of(const Tensor& operand, const Scratch& scratch) {
  check(operand.elements() * 4 <= scratch.bytes(), "matrix product needs {} bytes of scratch, reserved {}",
        operand.elements() * 4, scratch.bytes());
  return {reinterpret_cast<std::byte*>(scratch.floats()), DType::kF32, operand.rows, operand.cols,
          operand.cols};
}

// The operand itself if it is FP32, else an FP32 copy in scratch.
Tensor widened(const Tensor& operand, const Scratch& scratch) {
  if (operand.dtype == DType::kF32) return operand;
  const Tensor copy = copy_of(operand, scratch);
  widen_rows(operand, copy);
  return copy;
}

float value_at(const float* scale_inv) { return scale_inv == nullptr ? 1.0f : *scale_inv; }

}  // namespace

void CpuGemm::run(const GemmCall& call) {
  check_shapes(call);
  if (call.m() == 0 || call.n() == 0) return;
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  check(std::max({call.m(), call.n(), call.k(), call.a.stride, call.b.stride, call.d.stride}) <= kMost,
        "matrix product of {} x {} x {} with rows {}, {} and {} apart exceeds {}", call.m(), call.n(),
        call.k(), call.a.stride, call.b.stride, call.d.stride, kMost);
  const Tensor a = widened(call.a, a_), b = widened(call.b, b_);
  const bool direct = call.d.dtype == DType::kF32;
  const Tensor d = call.accumulate == Accumulate::kYes ? widened(call.d, d_)
                   : direct                            ? call.d
                                                       : copy_of(call.d, d_);
  sgemm({.transpose_a = call.transpose_a,
         .transpose_b = call.transpose_b,
         .m = call.m(),
         .n = call.n(),
         .k = call.k(),
         .a = a.as<float>(),
         .lda = a.stride,
         .b = b.as<float>(),
         .ldb = b.stride,
         .alpha = value_at(call.scale_inv_a) * value_at(call.scale_inv_b),
         .beta = call.accumulate == Accumulate::kYes ? 1.0f : 0.0f,
         .d = d.as<float>(),
         .ldd = d.stride});
  if (!direct) narrow_rows(d, call.d);
}

}  // namespace mpt
