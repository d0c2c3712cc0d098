// The CPU backend: host memory, OpenMP iteration, packed products, tiled attention.
#pragma once

#include <memory>

#include "device/device.h"

namespace mpt {

// threads = 0 takes every processor this process may run on.
std::unique_ptr<Device> make_cpu_device(int threads);

}  // namespace mpt
