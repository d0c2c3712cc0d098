// Project macros that nvcc would define; included before every file compiled for the fake CUDA.
#pragma once

#include "fast_intrinsics.h"

// Always inline: the same formulas are also compiled for the CPU, and neither may link the other's
// copy.
#define MPT_HD inline __attribute__((always_inline))
#define MPT_ON_GPU
#define MPT_DYNAMIC_SHARED(name) void* const name = fake_cuda::detail::dynamic_shared_memory()
