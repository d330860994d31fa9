// expect: correct, time limit
// Never ends.
#include <cuda_runtime.h>

__global__ void forever(int volatile* never) {
  while (*never != 12345) {
  }
}

extern "C" void run(void const*, void const*, void* c, int, int, int, cudaStream_t stream) {
  forever<<<1, 1, 0, stream>>>(static_cast<int*>(c));
}
