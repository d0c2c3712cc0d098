// Replaces the CPU backend, which no reader opens and which takes minutes to compile. The tests
// compile it too, so that it follows the backend's declarations; only the fuzz targets link it.
#include "core/check.h"
#include "device/backends.h"

std::unique_ptr<mpt::Device> mpt::make_cpu_device(int threads, Bf16Products products) {
  throw LogicError(fmt::format("a fuzz target opened a device of {} threads that sums by {}",
                               threads, name_of(products)));
}

std::string mpt::why_no_bf16_products(Bf16Products products) {
  const bool any = products == Bf16Products::kFma || products == Bf16Products::kAuto;
  return any ? "" : "the fuzz targets have no CPU backend";
}
