// Turns the file names and glob patterns a user gives into a list of files.
//
// Patterns keep their order; the files of one pattern are sorted by name, bytewise, so the list does not
// depend on the locale or the file system. A pattern that names nothing, a directory, a file that is no
// regular file and a file that is named twice are errors. A name that exists is taken literally, also with
// `*` or `[` in it.
#pragma once

#include <string>
#include <vector>

namespace mpt {

std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns);

// Whether expand_patterns() would find anything for the name or pattern.
bool names_a_file(const std::string& pattern);

// Throws Error unless `path` is a regular file that exists.
void require_regular_file(const std::string& path);

}  // namespace mpt
