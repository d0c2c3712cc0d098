// Random bits for stochastic rounding: one word per element a lane owns. They depend on what is
// rounded (docs/numerics.md "Streams"), not on which lane or rank rounds it.
#pragma once

#include "core/blocks.h"
#include "core/random.h"
#include "precision/format.h"

namespace mpt {

// Overflow of a stochastically rounded BF16: becomes infinity, as published, or saturates at the
// largest finite value (`sr_saturate`). Scaled formats always saturate.
enum class Carry : uint8_t { kToInfinity, kSaturates };

// The words are unused with kNearest.
template <int kSize>
struct Dither {
  Rounding rounding = Rounding::kNearest;
  Carry carry = Carry::kToInfinity;
  uint32_t word[kSize];
};

inline constexpr RandomStream kWeightRoundingStream{1};

// Identifies the random bits: a tensor at a step, for one purpose.
struct DitherSource {
  Rounding rounding = Rounding::kNearest;
  uint64_t seed = 0;
  uint32_t tensor = 0;
  uint32_t step = 0;
  RandomStream stream = kWeightRoundingStream;
  Carry carry = Carry::kToInfinity;  // sr_saturate: kSaturates

  template <class G>
  MPT_HD Dither<LanePart<G>::kSize> draw(G group, BlockSpan span) const {
    constexpr int kWords = 4, kSize = LanePart<G>::kSize;
    static_assert(kSize % kWords == 0);
    Dither<kSize> dither;
    dither.rounding = rounding;
    dither.carry = carry;
    if (rounding == Rounding::kNearest) return dither;
    const RandomCounter counter{seed, tensor, static_cast<uint32_t>(span.row), step, stream};
    const auto first = static_cast<uint32_t>(span.col + group.lane() * kSize) / kWords;
#pragma omp simd
    for (int b = 0; b < kSize / kWords; ++b) {
      const PhiloxBlock block = counter.block(first + static_cast<uint32_t>(b));
      for (int j = 0; j < kWords; ++j) dither.word[kWords * b + j] = block.word[j];
    }
    return dither;
  }
};

}  // namespace mpt
