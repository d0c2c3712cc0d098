// Marks the formulas that are compiled for the host and, under nvcc, for the device as well.
#pragma once

// What a hot loop calls: a call would leave it without vectors. Written out behind a lambda, clang-format
// takes the attribute for Objective-C.
#define MPT_ALWAYS_INLINE __attribute__((always_inline))

#if defined(__CUDACC__)
#define MPT_HD __host__ __device__ __forceinline__
#elif !defined(MPT_HD)  // the fake CUDA of the tests has its own
#define MPT_HD inline
#endif

// Defined where code is compiled for the GPU, or for what stands for one in tests.
#if defined(__CUDA_ARCH__)
#define MPT_ON_GPU
#endif
