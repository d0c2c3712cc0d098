// Memory use of this process.
#pragma once

#include <cstdint>

namespace mpt {

// Resident bytes, including shared libraries (/proc/self/statm, proc(5)); 0 if the system does not
// report them.
int64_t resident_bytes();

}  // namespace mpt
