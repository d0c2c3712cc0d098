// Collects everything wrong with an input, to be reported in a single Error.
#pragma once

#include <string>
#include <vector>

namespace mpt {

using Problems = std::vector<std::string>;

// Throws one Error that lists all problems, if there are any.
void throw_problems(const Problems& problems);
// For use while collecting: throws once there are many, since nobody reads them all.
void throw_many_problems(const Problems& problems);

}  // namespace mpt
