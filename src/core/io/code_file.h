// Path of the file that contains this program's code.
#pragma once

#include <string>

namespace mpt {

// The shared library containing this function, as in a package, or "/proc/self/exe".
std::string code_file();

}  // namespace mpt
