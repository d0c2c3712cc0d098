// Number formats of computation, optimizer state and gradients, with their names in configs. For
// weights see weight_formats.h.
#pragma once

#include <cstdint>
#include <utility>

#include "core/bf16.h"
#include "core/enum_names.h"
#include "core/tensor.h"

namespace mpt {

// Formats with independent elements: optimizer states and gradients.
enum class Format : uint8_t { kF32, kBF16 };
template <>
struct EnumNames<Format> {
  static constexpr std::array<std::string_view, 2> kNames{"fp32", "bf16"};
};
constexpr DType dtype_of(Format format) {
  return format == Format::kF32 ? DType::kF32 : DType::kBF16;
}

// Operands of GEMMs. fp8: linear layers only, BF16 everywhere else. tf32: FP32 everywhere; GPU
// GEMMs read only TF32's 10 mantissa bits.
enum class ComputeFormat : uint8_t { kF32, kBF16, kFp8, kTf32 };
template <>
struct EnumNames<ComputeFormat> {
  static constexpr std::array<std::string_view, 4> kNames{"fp32", "bf16", "fp8", "tf32"};
};
// Activations, their gradients, and weights as non-FP8 GEMMs read them.
constexpr DType activation_dtype(ComputeFormat format) {
  const bool wide = format == ComputeFormat::kF32 || format == ComputeFormat::kTf32;
  return wide ? DType::kF32 : DType::kBF16;
}

// Rounding of an FP32 value on store: to nearest, or up or down with probabilities that make it
// unbiased.
enum class Rounding : uint8_t { kNearest, kStochastic };
template <>
struct EnumNames<Rounding> {
  static constexpr std::array<std::string_view, 2> kNames{"nearest", "stochastic"};
};

}  // namespace mpt
