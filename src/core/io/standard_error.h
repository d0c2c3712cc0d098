// Status output must not stop the program.
#pragma once

#include <cstdio>
#include <string_view>

namespace mpt {

// Writes to standard error; drops what cannot be written, as on a full disk.
inline void write_to_standard_error(std::string_view text) noexcept {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
  (void)std::fflush(stderr);
}

}  // namespace mpt
