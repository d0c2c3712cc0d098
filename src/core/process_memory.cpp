#include "core/process_memory.h"

#include <cstdint>
#include <fstream>

#include <unistd.h>

namespace mpt {

int64_t resident_bytes() {
  std::ifstream pages("/proc/self/statm");
  int64_t total = 0, resident = 0;
  return pages >> total >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace mpt
