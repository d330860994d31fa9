// expect: static, cudaEventRecord
// Replaces the function that timers call.
#include "plain.cuh"

extern "C" __attribute__((visibility("default"))) cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaSuccess;
}

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  plain(a, b, c, m, n, k, stream);
}
