// What a library says went wrong, without its own names and source files, which tell a user nothing.
#pragma once

#include <string>
#include <string_view>

namespace mpt {

//   "[json.exception.parse_error.101] parse error at line 1, column 2: ..." -> "line 1, column 2: ..."
//   "Internal: ./src/a.cc(232) [x == y] Too many."                          -> "Too many."
// Long ones, which may quote a whole file, are shortened. May be empty.
std::string library_message(std::string_view what);

}  // namespace mpt
