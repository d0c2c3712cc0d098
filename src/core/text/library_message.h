// Strips a library's own names and source files from its error message; they mean nothing to a
// user.
#pragma once

#include <string>
#include <string_view>

namespace mpt {

//   "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
//                                                     -> "line 1, column 2: ..."
//   "Internal: ./src/a.cc(232) [x == y] Too many."    -> "Too many."
// Shortens long messages, which may quote a whole file. The result may be empty.
std::string library_message(std::string_view what);

}  // namespace mpt
