// expect: static, cublas
// Includes innocent.cuh, which includes more_innocent.cuh, which includes cuBLAS.
#include "innocent.cuh"
#include "plain.cuh"

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  plain(a, b, c, m, n, k, stream);
}
