// Stands in for the CPU backend, which no reader opens and which compiles for minutes.
#include "core/check.h"
#include "device/backends.h"

namespace mpt {

std::unique_ptr<Device> make_cpu_device(int threads) {
  throw LogicError(fmt::format("a fuzz target opened a device of {} threads", threads));
}

}  // namespace mpt
