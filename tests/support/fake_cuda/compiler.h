// What nvcc would define of the project's own words, included before every file that is compiled for the fake
// CUDA.
#pragma once

// Always inline: the same formulas are compiled for the CPU beside it, and neither may take the other's copy.
#define MPT_HD inline __attribute__((always_inline))
#define MPT_ON_GPU
#define MPT_DYNAMIC_SHARED(name) void* const name = fake_cuda::detail::dynamic_shared_memory()
