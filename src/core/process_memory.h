// What this process has in memory.
#pragma once

#include <cstdint>

namespace mpt {

// Bytes resident now, shared libraries included (/proc/self/statm, proc(5)); 0 where the system does not say.
int64_t resident_bytes();

}  // namespace mpt
