#include "device/gemm.h"

#include "core/check.h"

namespace mpt {

void check_shapes(const GemmCall& call) {
  const auto rows_of = [](const Tensor& t, Transpose tr) {
    return tr == Transpose::kNo ? t.rows : t.cols;
  };
  const auto cols_of = [](const Tensor& t, Transpose tr) {
    return tr == Transpose::kNo ? t.cols : t.rows;
  };
  const bool agree = rows_of(call.a, call.transpose_a) == call.m() &&
                     cols_of(call.a, call.transpose_a) == rows_of(call.b, call.transpose_b) &&
                     cols_of(call.b, call.transpose_b) == call.n();
  check(agree, "GEMM shapes do not match: A [{},{}], B [{},{}], D [{},{}], transposes {} and {}",
        call.a.rows, call.a.cols, call.b.rows, call.b.cols, call.d.rows, call.d.cols,
        int(call.transpose_a), int(call.transpose_b));
  const auto is_plain = [](DType type) { return type == DType::kF32 || type == DType::kBF16; };
  const DType a = call.a.dtype, b = call.b.dtype, d = call.d.dtype;
  const bool fp8 = is_fp8(a) && is_fp8(b) && (a == DType::kE4M3 || b == DType::kE4M3);
  check((fp8 || (is_plain(a) && is_plain(b))) && is_plain(d),
        "unsupported GEMM of {} and {} into {}", name_of(a), name_of(b), name_of(d));
}

}  // namespace mpt
