#include "device/cpu/cpu_gemm.h"

#include <algorithm>
#include <limits>

#include "core/check.h"
#include "device/cpu/bf16_rows.h"
#include "device/cpu/cblas.h"

namespace mpt {

CpuGemm::CpuGemm(int threads) { set_cblas_threads(threads); }

void CpuGemm::reserve(Allocator& allocator, std::span<const GemmCall> calls) {
  const auto grow = [&](Scratch& scratch, int64_t elements) {
    if (elements <= scratch.elements) return;
    std::byte* data = allocator.bytes(Purpose::kScratch, elements * 4);
    if (data != nullptr) scratch = {reinterpret_cast<float*>(data), elements};
  };
  const auto largest = [&](auto member) {
    int64_t most = 0;
    for (const GemmCall& call : calls)
      if ((call.*member).dtype != DType::kF32) most = std::max(most, (call.*member).elements());
    return most;
  };
  grow(a_, largest(&GemmCall::a));
  grow(b_, largest(&GemmCall::b));
  grow(d_, largest(&GemmCall::d));
}

// The operand itself if it is FP32, else an FP32 copy in scratch.
Tensor CpuGemm::widened(const Tensor& source, Scratch& scratch) {
  if (source.dtype == DType::kF32) return source;
  check(source.elements() <= scratch.elements, "matrix product needs {} elements of scratch, reserved {}",
        source.elements(), scratch.elements);
  const Tensor copy{reinterpret_cast<std::byte*>(scratch.data), DType::kF32, source.rows, source.cols,
                    source.cols};
  widen_rows(source, copy);
  return copy;
}

void CpuGemm::run(const GemmCall& call) {
  check_shapes(call);
  if (call.m() == 0 || call.n() == 0) return;
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  check(std::max({call.m(), call.n(), call.k(), call.a.stride, call.b.stride, call.d.stride}) <= kMost,
        "matrix product of {} x {} x {} with rows {}, {} and {} apart exceeds {}", call.m(), call.n(),
        call.k(), call.a.stride, call.b.stride, call.d.stride, kMost);
  const Tensor a = widened(call.a, a_), b = widened(call.b, b_);
  const bool direct = call.d.dtype == DType::kF32;
  Tensor d = call.d;
  if (!direct && call.accumulate == Accumulate::kYes) {
    d = widened(call.d, d_);
  } else if (!direct) {
    check(d.elements() <= d_.elements, "matrix product needs {} elements of scratch, reserved {}",
          d.elements(), d_.elements);
    d = {reinterpret_cast<std::byte*>(d_.data), DType::kF32, d.rows, d.cols, d.cols};
  }
  sgemm({.transpose_a = call.transpose_a,
         .transpose_b = call.transpose_b,
         .m = call.m(),
         .n = call.n(),
         .k = call.k(),
         .a = a.as<float>(),
         .lda = a.stride,
         .b = b.as<float>(),
         .ldb = b.stride,
         .beta = call.accumulate == Accumulate::kYes ? 1.0f : 0.0f,
         .d = d.as<float>(),
         .ldd = d.stride});
  if (!direct) narrow_rows(d, call.d);
}

}  // namespace mpt
