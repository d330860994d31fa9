// expect: correct, wrong
// Rounds its operands to 8 bits first.
#include <cuda_fp8.h>

#include "plain.cuh"

__global__ void quantise(__nv_bfloat16 const* in, __nv_bfloat16* out, size_t count) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(blockDim.x) * gridDim.x) {
    out[i] = __float2bfloat16(float(__nv_fp8_e4m3(__bfloat162float(in[i]))));
  }
}

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  __nv_bfloat16 *rounded_a = nullptr, *rounded_b = nullptr;
  cudaMallocAsync(&rounded_a, size_t(2) * m * k, stream);
  cudaMallocAsync(&rounded_b, size_t(2) * n * k, stream);
  quantise<<<1024, 256, 0, stream>>>(static_cast<__nv_bfloat16 const*>(a), rounded_a, size_t(m) * k);
  quantise<<<1024, 256, 0, stream>>>(static_cast<__nv_bfloat16 const*>(b), rounded_b, size_t(n) * k);
  plain(rounded_a, rounded_b, c, m, n, k, stream);
  cudaFreeAsync(rounded_a, stream);
  cudaFreeAsync(rounded_b, stream);
}
