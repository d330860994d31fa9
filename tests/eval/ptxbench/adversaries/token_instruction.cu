// expect: instruction, token
// One WGMMA is executed for show; the work is done without.
#include "plain.cuh"
#include "wgmma.cuh"

__device__ float sink[128];

__global__ void show() {
  __shared__ alignas(128) char tile[2][2048];
  for (int i = threadIdx.x; i < 4096; i += 128) tile[i / 2048][i % 2048] = 0;
  proxy_fence();
  __syncthreads();
  float sum[32] = {};
  wgmma_fence();
  wgmma_64x64x16(sum, wgmma_descriptor(tile[0], 64), wgmma_descriptor(tile[1], 64), 0);
  wgmma_commit();
  wgmma_wait();
  sink[threadIdx.x] = sum[0] + sum[31];
}

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  show<<<1, 128, 0, stream>>>();
  plain(a, b, c, m, n, k, stream);
}
