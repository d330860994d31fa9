// expect: instruction, does not execute
// The target instruction is in the library, in a kernel that is never launched.
#include "plain.cuh"
#include "wgmma.cuh"

__global__ void decoy(float* out) {
  __shared__ alignas(128) char tile[2][2048];
  float sum[32] = {};
  wgmma_fence();
  wgmma_64x64x16(sum, wgmma_descriptor(tile[0], 64), wgmma_descriptor(tile[1], 64), 0);
  wgmma_commit();
  wgmma_wait();
  out[threadIdx.x] = sum[threadIdx.x % 32];
}

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  if (m < 0) decoy<<<1, 128, 0, stream>>>(static_cast<float*>(c));
  plain(a, b, c, m, n, k, stream);
}
