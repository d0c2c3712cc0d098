// Everything that is wrong with an input, to be reported in one Error.
#pragma once

#include <string>
#include <vector>

namespace mpt {

using Problems = std::vector<std::string>;

// Throws one Error that lists all problems, if there are any.
void throw_problems(const Problems& problems);
// Where problems are added: nobody reads more than some, and files may have very many.
void throw_many_problems(const Problems& problems);

}  // namespace mpt
