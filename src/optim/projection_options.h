// A rule's options for a second moment in a random subspace (Apollo-E, apollo_e.h).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/enum_names.h"

namespace mpt {

// Whether a whole matrix shares a scale (mini), or each channel has its own.
enum class ApolloE : uint8_t { kOff, kMini, kChannel };
template <>
struct EnumNames<ApolloE> {
  static constexpr std::array<std::string_view, 3> kNames{"off", "mini", "channel"};
};

// rms: directions are scaled to an RMS of about 1, like dense ones; unit: not scaled.
enum class ApolloEScale : uint8_t { kRms, kAsProjected };
template <>
struct EnumNames<ApolloEScale> {
  static constexpr std::array<std::string_view, 2> kNames{"rms", "unit"};
};

struct ProjectionOptions {
  ApolloE sharing = ApolloE::kChannel;  // not kOff
  int64_t rank = 4;                     // r, of the subspace
  int64_t gap = 200;                    // updates between projections
  ApolloEScale scale = ApolloEScale::kRms;
  double beta2 = 0, eps = 0;
  bool bias_correction = true;
};

}  // namespace mpt
