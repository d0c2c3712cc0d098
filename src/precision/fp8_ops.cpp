#include "precision/fp8_ops.h"

namespace mpt {

void check_targets(const Fp8CastCall& call) {
  const int64_t rows = call.source.rows, cols = call.source.cols;
  const auto fits = [&](const Tensor& t, int64_t r, int64_t c) {
    return t.rows == 0 || (t.rows == r && t.cols == c && t.dtype == call.format());
  };
  check(fits(call.target, rows, cols) && fits(call.transposed, cols, rows),
        "cast of [{},{}] does not fit the target [{},{}] {} and the transposed target [{},{}] {}",
        rows, cols, call.target.rows, call.target.cols, name_of(call.target.dtype),
        call.transposed.rows, call.transposed.cols, name_of(call.transposed.dtype));
  check(call.format() == DType::kE4M3 || call.format() == DType::kE5M2,
        "cast to FP8 as {}; expected e4m3 or e5m2", name_of(call.format()));
}

}  // namespace mpt
