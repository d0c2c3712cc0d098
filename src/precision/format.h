// The number formats of weights, computation, optimizer state and gradients, by their names in configs.
#pragma once

#include <cstdint>

#include "core/enum_names.h"
#include "core/tensor.h"

namespace mpt {

enum class Format : uint8_t { kF32, kBF16 };
template <>
struct EnumNames<Format> {
  static constexpr std::array<std::string_view, 2> kNames{"fp32", "bf16"};
};

// The element type that stores one value of a format that has one.
constexpr DType dtype_of(Format format) { return format == Format::kF32 ? DType::kF32 : DType::kBF16; }

}  // namespace mpt
