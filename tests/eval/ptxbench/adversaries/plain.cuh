// A correct, slow product without tensor cores, for kernels whose dishonesty lies elsewhere.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kTile = 64, kDepth = 16;

// Rows `first` to `m` of C = A B^T; A is m x k, B is n x k, both row-major. 256 threads, 4x4 elements each.
static __global__ void plain_gemm(__nv_bfloat16 const* a, __nv_bfloat16 const* b, __nv_bfloat16* c, int m, int n, int k,
                                  int first) {
  __shared__ float tile_a[kDepth][kTile + 1], tile_b[kDepth][kTile + 1];
  int const row0 = first + int(blockIdx.y) * kTile, column0 = int(blockIdx.x) * kTile;
  int const tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += kDepth) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += 256) {
      int const row = i / kDepth, depth = i % kDepth;
      bool const in_k = k0 + depth < k;
      tile_a[depth][row] =
          in_k && row0 + row < m ? __bfloat162float(a[size_t(row0 + row) * k + k0 + depth]) : 0.0f;
      tile_b[depth][row] =
          in_k && column0 + row < n ? __bfloat162float(b[size_t(column0 + row) * k + k0 + depth]) : 0.0f;
    }
    __syncthreads();
    for (int depth = 0; depth < kDepth; ++depth) {
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) sum[i][j] += tile_a[depth][ty + 16 * i] * tile_b[depth][tx + 16 * j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      int const row = row0 + ty + 16 * i, column = column0 + tx + 16 * j;
      if (row < m && column < n) c[size_t(row) * n + column] = __float2bfloat16(sum[i][j]);
    }
  }
}

static void plain(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream, int first = 0) {
  dim3 const grid((n + kTile - 1) / kTile, (m - first + kTile - 1) / kTile);
  plain_gemm<<<grid, 256, 0, stream>>>(static_cast<__nv_bfloat16 const*>(a), static_cast<__nv_bfloat16 const*>(b),
                                       static_cast<__nv_bfloat16*>(c), m, n, k, first);
}
