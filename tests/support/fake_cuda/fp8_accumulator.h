// The accumulator of Hopper's FP8 tensor cores, from published measurements ("DeepSeek-V3 Technical
// Report", 3.3.2): it keeps fewer bits than FP32.
//
// An instruction takes 32 exact products, aligns them and the running sum to the largest, drops
// bits below 13 fraction bits, adds, and drops bits of the sum likewise. A GPU may differ in
// detail: whatever a test guarantees must hold for any order and any grouping of the terms.
#pragma once

#include <cstdint>
#include <span>

namespace fake_cuda::detail {

enum class Promotion : uint8_t {
  kNever,  // "fast accumulation": all of k stays in the tensor core
  kOften,  // sums of 128 products are added in FP32
};

// sum_i a_i b_i of FP8 values; `a` and `b` have the same size.
double fp8_dot(std::span<const double> a, std::span<const double> b, Promotion promotion);

}  // namespace fake_cuda::detail
