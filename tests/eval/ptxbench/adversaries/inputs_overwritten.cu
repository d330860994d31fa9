// expect: correct, inputs were overwritten
// Leaves a trace in A.
#include "plain.cuh"

__global__ void overwrite(unsigned short* a) { a[0] ^= 1; }

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  plain(a, b, c, m, n, k, stream);
  overwrite<<<1, 1, 0, stream>>>(static_cast<unsigned short*>(const_cast<void*>(a)));
}
