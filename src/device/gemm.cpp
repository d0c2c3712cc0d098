#include "device/gemm.h"

#include "core/check.h"

namespace mpt {

void check_shapes(const GemmCall& call) {
  const auto rows_of = [](const Tensor& t, Transpose tr) { return tr == Transpose::kNo ? t.rows : t.cols; };
  const auto cols_of = [](const Tensor& t, Transpose tr) { return tr == Transpose::kNo ? t.cols : t.rows; };
  const bool agree = rows_of(call.a, call.transpose_a) == call.m() &&
                     cols_of(call.a, call.transpose_a) == rows_of(call.b, call.transpose_b) &&
                     cols_of(call.b, call.transpose_b) == call.n();
  check(agree, "matrix product of A [{},{}] and B [{},{}] into D [{},{}] with transposes {} and {}",
        call.a.rows, call.a.cols, call.b.rows, call.b.cols, call.d.rows, call.d.cols, int(call.transpose_a),
        int(call.transpose_b));
  for (const Tensor& t : {call.a, call.b, call.d})
    check(t.dtype == DType::kF32 || t.dtype == DType::kBF16, "matrix product of elements of type {}",
          name_of(t.dtype));
}

}  // namespace mpt
