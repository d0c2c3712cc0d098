#include "cli/waiting_threads.h"

#include <climits>
#include <cstdlib>

#include <unistd.h>

namespace mpt {

void let_waiting_threads_sleep(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  char self[PATH_MAX] = {};
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  // GCC's runtime reads the spin count, others the policy.
  if (length <= 0 || setenv("OMP_WAIT_POLICY", "passive", 1) != 0 ||
      setenv("GOMP_SPINCOUNT", "2000", 1) != 0)
    return;
  execv(self, argv);
}

}  // namespace mpt
