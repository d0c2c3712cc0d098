// Which tokens of its row a token attends to. If rows hold several documents and attention stays
// within them, `document_begin` gives for every token where in its row its document begins: t if
// one begins at t, else the value for token t - 1.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/enum_names.h"

namespace mpt {

// row: all earlier tokens; document: only those of its own document.
enum class AttentionScope : uint8_t { kRow, kDocument };
template <>
struct EnumNames<AttentionScope> {
  static constexpr std::array<std::string_view, 2> kNames{"row", "document"};
};

}  // namespace mpt
