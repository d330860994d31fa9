// expect: instruction, no target instruction
// Executes a prefetch of a tensor map (UTMACCTL.PF), which moves no data.
#include <cuda.h>

#include "plain.cuh"

__global__ void prefetch(CUtensorMap const __grid_constant__ map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(&map) : "memory");
}

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  CUtensorMap map{};
  prefetch<<<1, 32, 0, stream>>>(map);
  plain(a, b, c, m, n, k, stream);
}
