// expect: correct, around the matrices
// Writes one element behind the output.
#include "plain.cuh"

__global__ void spill(__nv_bfloat16* end) { *end = __float2bfloat16(1.0f); }

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  plain(a, b, c, m, n, k, stream);
  spill<<<1, 1, 0, stream>>>(static_cast<__nv_bfloat16*>(c) + size_t(m) * n);
}
