// Marks the formulas that are compiled for the host and, under nvcc, for the device as well.
#pragma once

#ifdef __CUDACC__
#define MPT_HD __host__ __device__ __forceinline__
#else
#define MPT_HD inline
#endif

// Defined where code is compiled for the GPU.
#ifdef __CUDA_ARCH__
#define MPT_ON_GPU
#endif
