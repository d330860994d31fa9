// What CUTLASS's device functions name besides C++, so that a plain C++ compiler takes them. Nothing of it is called.
#pragma once
#include <cuda_runtime_api.h>

inline uint3 threadIdx{}, blockIdx{};
inline dim3 gridDim{}, blockDim{};
inline void __syncthreads() {}
inline void __syncwarp(unsigned = 0) {}
inline void __threadfence() {}
inline int atomicAdd(int*, int) { return 0; }
inline int atomicCAS(int*, int, int) { return 0; }
inline int __ffs(int) { return 0; }

extern "C" inline cudaError_t cudaGetDevice(int*) { return cudaErrorNoDevice; }
extern "C" inline cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int) { return cudaErrorNoDevice; }
