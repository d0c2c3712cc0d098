// How a CPU sums dot products of BF16 and FP8 numbers, in GEMMs and in attention.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/enum_names.h"

namespace mpt {

// See docs/numerics.md "Dot products of BF16 numbers" for the sums. fma: as FP32 numbers.
// avx512_bf16 and amx_bf16: pairs of BF16 numbers, by the corresponding processor instruction.
// auto: the fastest of them where the run begins (fastest_bf16_dot()).
enum class Bf16Dot : uint8_t { kFma, kAuto, kAvx512Bf16, kAmxBf16 };
template <>
struct EnumNames<Bf16Dot> {
  static constexpr std::array<std::string_view, 4> kNames{"fma", "auto", "avx512_bf16", "amx_bf16"};
};

// Why the processor or the system does not support them; empty if they do. Asks the system for
// permission to use AMX.
std::string why_no_bf16_dot(Bf16Dot dot);

// amx_bf16 if available; else avx512_bf16 on processors that sum as many pairs per instruction as
// numbers per multiply-add (AMD's); else fma. Intel's without AMX sum half as many
// (docs/benchmarks/cpu.md).
Bf16Dot fastest_bf16_dot();

}  // namespace mpt
