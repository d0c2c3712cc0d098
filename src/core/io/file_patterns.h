// Expands file names and glob patterns given by the user into a list of files.
//
// Patterns keep their order; the files of one pattern are sorted by name, bytewise, so the list
// does not depend on the locale or the file system. An existing name is taken literally, even if it
// contains `*` or `[`. As in a shell, only a dot matches a leading dot. Errors: a pattern without a
// match; a directory or name along the way that cannot be listed or inspected; anything but a
// regular file; a file listed twice, even by another spelling or a link.
#pragma once

#include <string>
#include <vector>

namespace mpt {

std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns);

// Whether expand_patterns() would find a file for the name or pattern. Throws Error, like
// expand_patterns(), if something cannot be listed or inspected.
bool names_a_file(const std::string& pattern);

}  // namespace mpt
