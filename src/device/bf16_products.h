// How a CPU sums the products of GEMMs whose operands are BF16 or FP8.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/enum_names.h"

namespace mpt {

// docs/numerics.md "Products of BF16 numbers" says how each sums. fma: as FP32 numbers. avx512_bf16
// and amx_bf16: pairs of BF16 numbers by the processor's instruction for them. auto: amx_bf16 where
// the processor and the system have it, else fma.
enum class Bf16Products : uint8_t { kFma, kAuto, kAvx512Bf16, kAmxBf16 };
template <>
struct EnumNames<Bf16Products> {
  static constexpr std::array<std::string_view, 4> kNames{"fma", "auto", "avx512_bf16", "amx_bf16"};
};

// Why the processor or the system cannot do so; empty if they can. Asks the system for the use of
// AMX.
std::string why_no_bf16_products(Bf16Products products);

}  // namespace mpt
