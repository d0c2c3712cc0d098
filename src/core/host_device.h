// Marks functions compiled for the host and, under nvcc, for the device as well.
#pragma once

// For functions called in hot loops, where an out-of-line call would prevent vectorisation. A macro
// because clang-format mistakes the attribute after a lambda for Objective-C.
#define MPT_ALWAYS_INLINE __attribute__((always_inline))

// For templates that run rarely but have many instances: the host compiler keeps them small, which
// takes half the compile time of making them fast.
#if defined(__CUDACC__)
#define MPT_COLD
#else
#define MPT_COLD __attribute__((cold))
#endif

#if defined(__CUDACC__)
#define MPT_HD __host__ __device__ __forceinline__
#elif !defined(MPT_HD)  // the tests' fake CUDA defines its own
#define MPT_HD inline
#endif

// Defined when compiling for the GPU, or for the tests' stand-in for one.
#if defined(__CUDA_ARCH__)
#define MPT_ON_GPU
#endif
