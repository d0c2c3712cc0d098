// "1 token", "2 tokens".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mpt {

inline std::string counted(int64_t n, std::string_view noun) {
  return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : "s");
}

}  // namespace mpt
