// "1 token", "2 tokens"; "2 batches" with the ending "es".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mpt {

inline std::string counted(int64_t n, std::string_view noun, std::string_view ending = "s") {
  return std::to_string(n) + " " + std::string(noun) + std::string(n == 1 ? "" : ending);
}

}  // namespace mpt
