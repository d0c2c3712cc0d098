// Replaces the CPU backend, which no reader opens and which takes minutes to compile. The tests
// compile it too, so that it follows the backend's declarations; only the fuzz targets link it.
#include "core/check.h"
#include "device/backends.h"

std::unique_ptr<mpt::Device> mpt::make_cpu_device(int threads, Bf16Dot dot) {
  throw LogicError(fmt::format("a fuzz target opened a device of {} threads that sums by {}",
                               threads, name_of(dot)));
}

std::string mpt::why_no_bf16_dot(Bf16Dot dot) {
  const bool any = dot == Bf16Dot::kFma || dot == Bf16Dot::kAuto;
  return any ? "" : "the fuzz targets have no CPU backend";
}
