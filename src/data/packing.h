// How packed rows are filled: from the stream of all tokens, or with whole documents
// (data/best_fit.h).
#pragma once

#include <array>
#include <string_view>

#include "core/enum_names.h"

namespace mpt {

enum class Packing : uint8_t { kStream, kBestFit };
template <>
struct EnumNames<Packing> {
  static constexpr std::array<std::string_view, 2> kNames{"stream", "best_fit"};
};

}  // namespace mpt
