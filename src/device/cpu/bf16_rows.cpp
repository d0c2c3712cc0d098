#include "device/cpu/bf16_rows.h"

#include "core/bf16.h"

namespace mpt {
namespace {

template <class From, class To>
void convert_rows(const Tensor& source, const Tensor& target) {
  check(source.rows == target.rows && source.cols == target.cols, "conversion of [{},{}] to [{},{}]",
        source.rows, source.cols, target.rows, target.cols);
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < source.rows; ++r) {
    const From* from = source.as<From>() + r * source.stride;
    To* to = target.as<To>() + r * target.stride;
#pragma omp simd
    for (int64_t c = 0; c < source.cols; ++c) to[c] = from_float<To>(to_float(from[c]));
  }
}

}  // namespace

void widen_rows(const Tensor& source, const Tensor& target) { convert_rows<bf16, float>(source, target); }
void narrow_rows(const Tensor& source, const Tensor& target) { convert_rows<float, bf16>(source, target); }

}  // namespace mpt
