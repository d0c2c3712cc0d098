// Weights in FP32 and BF16, whose elements are independent.
#pragma once

#include <string>

#include "precision/codec.h"
#include "precision/encoded_tensor.h"

namespace mpt {

struct Fp32Weights {
  static constexpr std::string_view kName = "fp32";
  using Codec = ElementCodec;
  static constexpr double kNominalBytes = 4;

  static constexpr EncodedLayout layout(const WeightEncoding&) { return {.codes = DType::kF32}; }
  static std::string details(const WeightEncoding&) { return ""; }
};

struct Bf16Weights {
  static constexpr std::string_view kName = "bf16";
  using Codec = ElementCodec;
  static constexpr double kNominalBytes = 2;

  static constexpr EncodedLayout layout(const WeightEncoding&) { return {.codes = DType::kBF16}; }
  static std::string details(const WeightEncoding&) { return ""; }
};

}  // namespace mpt
