// Whether to run all test cases (`scripts/test.sh --all`), or a part that finds nearly as much in a
// tenth of the time: CONTRIBUTING.md "Tests" lists what each test omits by default.
#pragma once

#include <cstdlib>
#include <string_view>

namespace mpt::test {

inline bool all_tests() {
  const char* const value = std::getenv("MPT_ALL_TESTS");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace mpt::test
