// What a program tells while it works must not end its work.
#pragma once

#include <cstdio>
#include <string_view>

namespace mpt {

// Writes to standard error; what cannot be written, as on a full disk, is lost.
inline void write_to_standard_error(std::string_view text) noexcept {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
  (void)std::fflush(stderr);
}

}  // namespace mpt
