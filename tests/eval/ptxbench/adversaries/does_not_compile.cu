// expect: static, undeclared_tile
#include <cuda_runtime.h>

extern "C" void run(void const*, void const*, void* c, int, int, int, cudaStream_t stream) {
  cudaMemsetAsync(c, 0, undeclared_tile, stream);
}
