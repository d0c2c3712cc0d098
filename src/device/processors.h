// The processors that this process may use.
#pragma once

#include <sched.h>

namespace mpt {

inline int available_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace mpt
