#include "device/cpu/convert_rows.h"

#include "core/bf16.h"
#include "core/float_format.h"

namespace mpt {
namespace {

// to = convert(from), element by element.
template <class From, class To, class Convert>
void convert_rows(const Tensor& source, const Tensor& target, const Convert& convert) {
  check(source.rows == target.rows && source.cols == target.cols, "conversion of [{},{}] to [{},{}]",
        source.rows, source.cols, target.rows, target.cols);
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < source.rows; ++r) {
    const From* from = source.as<From>() + r * source.stride;
    To* to = target.as<To>() + r * target.stride;
#pragma omp simd
    for (int64_t c = 0; c < source.cols; ++c) to[c] = convert(from[c]);
  }
}

template <FloatFormat kFormat>
void decode_rows(const Tensor& source, const Tensor& target) {
  convert_rows<uint8_t, float>(source, target, [](uint8_t code) { return decode<kFormat>(code); });
}

}  // namespace

void widen_rows(const Tensor& source, const Tensor& target) {
  switch (source.dtype) {
    case DType::kE4M3:
      return decode_rows<kE4M3>(source, target);
    case DType::kE5M2:
      return decode_rows<kE5M2>(source, target);
    default:
      convert_rows<bf16, float>(source, target, [](bf16 x) { return to_float(x); });
  }
}

void narrow_rows(const Tensor& source, const Tensor& target) {
  convert_rows<float, bf16>(source, target, [](float x) { return bf16_nearest(x); });
}

}  // namespace mpt
