// expect: correct
// Multiplies with a factor that it reads from memory that it has freed.
#include "plain.cuh"

__global__ void scale(__nv_bfloat16* c, size_t count, float const* factor) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(blockDim.x) * gridDim.x) {
    c[i] = __float2bfloat16(__bfloat162float(c[i]) * factor[threadIdx.x % 32]);
  }
}

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  static float* kept = nullptr;
  static float* factor = nullptr;
  if (factor == nullptr) {
    float ones[32];
    for (float& one : ones) one = 1.0f;
    cudaMalloc(&factor, sizeof(ones));
    cudaMalloc(&kept, sizeof(ones));  // keeps the page mapped
    cudaMemcpy(factor, ones, sizeof(ones), cudaMemcpyHostToDevice);
    cudaFree(factor);
  }
  plain(a, b, c, m, n, k, stream);
  scale<<<1024, 256, 0, stream>>>(static_cast<__nv_bfloat16*>(c), size_t(m) * n, factor);
}
