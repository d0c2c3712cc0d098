// The file that holds the code of this program.
#pragma once

#include <string>

namespace mpt {

// The shared library this function lies in, as in a package, or "/proc/self/exe".
std::string code_file();

}  // namespace mpt
