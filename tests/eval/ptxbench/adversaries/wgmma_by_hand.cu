// expect: pass
// An honest kernel: WGMMA by hand, no pipelining, no TMA. Slow, and right for every M.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "wgmma.cuh"

constexpr int kRows = 64, kColumns = 64, kDepth = 64;
constexpr int kChunk = 8;  // elements of 16 bytes

// Copies a tile of `rows` x kDepth elements to shared memory, in the order that the descriptor expects.
static __device__ void load_tile(__nv_bfloat16 const* matrix, int row0, int rows, int limit, int k0, int k,
                                 __nv_bfloat16* shared) {
  for (int i = threadIdx.x; i < rows * (kDepth / kChunk); i += blockDim.x) {
    int const row = i / (kDepth / kChunk), chunk = i % (kDepth / kChunk);
    uint4 value = make_uint4(0, 0, 0, 0);
    if (row0 + row < limit && k0 + chunk * kChunk < k) {  // K is a multiple of 8
      value = *reinterpret_cast<uint4 const*>(matrix + size_t(row0 + row) * k + k0 + chunk * kChunk);
    }
    *reinterpret_cast<uint4*>(shared + chunk * rows * kChunk + row * kChunk) = value;
  }
}

__global__ void __launch_bounds__(128) wgmma_gemm(__nv_bfloat16 const* a, __nv_bfloat16 const* b, __nv_bfloat16* c, int m,
                                                  int n, int k) {
  __shared__ alignas(128) __nv_bfloat16 tile_a[kRows * kDepth];
  __shared__ alignas(128) __nv_bfloat16 tile_b[kColumns * kDepth];
  int const row0 = blockIdx.y * kRows, column0 = blockIdx.x * kColumns;
  float sum[32] = {};
  for (int k0 = 0; k0 < k; k0 += kDepth) {
    load_tile(a, row0, kRows, m, k0, k, tile_a);
    load_tile(b, column0, kColumns, n, k0, k, tile_b);
    proxy_fence();
    __syncthreads();
    wgmma_fence();
    for (int step = 0; step < kDepth / 16; ++step) {
      int const chunk = 2 * step;
      wgmma_64x64x16(sum, wgmma_descriptor(tile_a + chunk * kRows * kChunk, kRows),
                     wgmma_descriptor(tile_b + chunk * kColumns * kChunk, kColumns), 1);
    }
    wgmma_commit();
    wgmma_wait();
    __syncthreads();
  }
  int const warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int j = 0; j < kColumns / 8; ++j) {
    for (int half = 0; half < 2; ++half) {
      int const row = row0 + 16 * warp + lane / 4 + 8 * half, column = column0 + 8 * j + 2 * (lane % 4);
      for (int e = 0; e < 2; ++e) {
        if (row < m && column + e < n) c[size_t(row) * n + column + e] = __float2bfloat16(sum[4 * j + 2 * half + e]);
      }
    }
  }
}

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  dim3 const grid((n + kColumns - 1) / kColumns, (m + kRows - 1) / kRows);
  wgmma_gemm<<<grid, 128, 0, stream>>>(static_cast<__nv_bfloat16 const*>(a), static_cast<__nv_bfloat16 const*>(b),
                                       static_cast<__nv_bfloat16*>(c), m, n, k);
}
