// Element types of a GEMM's operands, for code that packs them.
#pragma once

#include <array>
#include <cstdint>

#include "core/bf16.h"
#include "core/float_format.h"
#include "core/tensor.h"

namespace mpt {

// Storage type of an element, and its value.
struct Fp32Element {
  using Stored = float;
  static float value(float x) { return x; }
};
struct Bf16Element {
  using Stored = bf16;
  static float value(bf16 x) { return to_float(x); }
};
// Uses a table: GCC 12 vectorises decode() of few codes in byte lanes, several times slower.
template <FloatFormat kFormat>
struct Fp8Element {
  using Stored = uint8_t;
  static float value(uint8_t code) { return kValues[code]; }

 private:
  static inline const std::array<float, 256> kValues = [] {
    std::array<float, 256> values{};
    for (uint32_t code = 0; code < values.size(); ++code) values[code] = decode<kFormat>(code);
    return values;
  }();
};

template <class F>
void with_element(DType type, const F& f) {
  switch (type) {
    case DType::kBF16:
      return f.template operator()<Bf16Element>();
    case DType::kE4M3:
      return f.template operator()<Fp8Element<kE4M3>>();
    case DType::kE5M2:
      return f.template operator()<Fp8Element<kE5M2>>();
    default:
      return f.template operator()<Fp32Element>();
  }
}

template <class Element>
const typename Element::Stored* row_of(const Tensor& block, int64_t row) {
  return block.as<typename Element::Stored>() + row * block.stride;
}

}  // namespace mpt
