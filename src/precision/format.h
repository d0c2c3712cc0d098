// The number formats of weights, computation, optimizer state and gradients, by their names in configs.
#pragma once

#include <cstdint>

#include "core/enum_names.h"
#include "core/tensor.h"

namespace mpt {

// Formats whose elements stand alone: optimizer states and gradients.
enum class Format : uint8_t { kF32, kBF16 };
template <>
struct EnumNames<Format> {
  static constexpr std::array<std::string_view, 2> kNames{"fp32", "bf16"};
};
constexpr DType dtype_of(Format format) { return format == Format::kF32 ? DType::kF32 : DType::kBF16; }

// Master weights of the linear layers, the only copy there is. block_fp8: E4M3 codes, one FP16 scale a block
// of a row (docs/numerics.md "FP8 block weights"). nvfp4: E2M1 codes, one E4M3 scale for 16 of a row, one
// FP32 a tensor (docs/numerics.md "NVFP4 weights").
enum class WeightFormat : uint8_t { kF32, kBF16, kBlockFp8, kNvfp4 };
template <>
struct EnumNames<WeightFormat> {
  static constexpr std::array<std::string_view, 4> kNames{"fp32", "bf16", "block_fp8", "nvfp4"};
};
constexpr bool is_scaled(WeightFormat format) { return format >= WeightFormat::kBlockFp8; }
// Embedding, norms and head: fp32 beside fp32, bf16 beside everything else.
constexpr WeightFormat unscaled_format(WeightFormat linears) {
  return linears == WeightFormat::kF32 ? WeightFormat::kF32 : WeightFormat::kBF16;
}

// Operands of the matrix products. fp8: those of the linear layers only, BF16 everywhere else. tf32: FP32
// everywhere, of which GPUs' products read TF32's 10 bits of mantissa.
enum class ComputeFormat : uint8_t { kF32, kBF16, kFp8, kTf32 };
template <>
struct EnumNames<ComputeFormat> {
  static constexpr std::array<std::string_view, 4> kNames{"fp32", "bf16", "fp8", "tf32"};
};
// Activations, their gradients, and the weights as products other than FP8 ones read them.
constexpr DType activation_dtype(ComputeFormat format) {
  const bool wide = format == ComputeFormat::kF32 || format == ComputeFormat::kTf32;
  return wide ? DType::kF32 : DType::kBF16;
}

// How an FP32 value becomes a stored one: to the nearest, or up or down with the probabilities that make it
// right on average.
enum class Rounding : uint8_t { kNearest, kStochastic };
template <>
struct EnumNames<Rounding> {
  static constexpr std::array<std::string_view, 2> kNames{"nearest", "stochastic"};
};

}  // namespace mpt
