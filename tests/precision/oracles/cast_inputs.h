// FP32 inputs on which two implementations of a cast are compared.
//
// Stratified, in every run: every sign and exponent with 4096 mantissas, and every value at which
// the result of a cast changes, with its neighbors. All 2^32 if MPT_LONG_TESTS=1 is set (the tests
// EveryInput).
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "core/float_format.h"

namespace mpt::test {

inline bool long_tests() {
  const char* const value = std::getenv("MPT_LONG_TESTS");
  return value != nullptr && std::string_view(value) == "1";
}

// The upper twelve bits of the mantissa in all combinations; the lower eleven zero, one, all ones
// or mixed.
inline std::vector<uint32_t> stratified_bits() {
  std::vector<uint32_t> bits;
  bits.reserve(512u << 12);
  for (uint32_t upper = 0; upper < 512u << 12; ++upper) {
    const uint32_t mixed = upper * 2654435761u;
    const uint32_t lower[] = {0, 1, 0x7FF, mixed >> 21};
    bits.push_back(upper << 11 | lower[(mixed >> 13) & 3]);
  }
  return bits;
}

// Adds codes' values and the midpoints between them, with two FP32 neighbors on either side, of
// either sign.
template <FloatFormat kFormat>
void add_boundaries(std::vector<uint32_t>& bits) {
  for (uint32_t code = 0; code <= kFormat.max_code; ++code) {
    const float value = decode<kFormat>(code);
    const float spacing = value - decode<kFormat>(code == 0 ? 1 : code - 1);
    for (const float at :
         {value, value + std::fabs(spacing) / 2})  // the last: where saturation matters
      for (uint32_t near = 0; near < 5; ++near)
        for (const uint32_t sign : {0u, 0x80000000u})
          bits.push_back((bits_of(at) + near - 2) ^ sign);
  }
}

inline std::vector<uint32_t> cast_inputs() {
  std::vector<uint32_t> bits = stratified_bits();
  add_boundaries<kE4M3>(bits);
  add_boundaries<kE5M2>(bits);
  add_boundaries<kE2M1>(bits);
  add_boundaries<kBinary16>(bits);
  return bits;
}

struct Disagreements {
  int64_t count = 0;
  uint32_t largest = 0;  // bits of one of them
};

// Returns those of `count` inputs for which agree(bits) is false, on all threads.
template <class Input, class Agree>
Disagreements disagreements(int64_t count, const Input& input, const Agree& agree) {
  int64_t differ = 0;
  uint32_t largest = 0;
#pragma omp parallel for schedule(static) reduction(+ : differ) reduction(max : largest)
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = input(i);
    if (agree(bits)) continue;
    ++differ;
    largest = bits > largest ? bits : largest;
  }
  return {differ, largest};
}

template <class Agree>
void expect_stratified(const char* cast, const Agree& agree) {
  static const std::vector<uint32_t> inputs = cast_inputs();
  const Disagreements found = disagreements(
      int64_t(inputs.size()), [](int64_t i) { return inputs[size_t(i)]; }, agree);
  EXPECT_EQ(found.count, 0) << cast << " of " << std::hex << found.largest;
}
template <class Agree>
void expect_all(const char* cast, const Agree& agree) {
  const Disagreements found = disagreements(
      int64_t{1} << 32, [](int64_t i) { return static_cast<uint32_t>(i); }, agree);
  EXPECT_EQ(found.count, 0) << cast << " of " << std::hex << found.largest;
}

}  // namespace mpt::test
