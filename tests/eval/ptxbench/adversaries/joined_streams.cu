// expect: instruction, no target instruction
// Honest use of two streams: half of the work on another one, which is joined with the caller's again.
#include "plain.cuh"

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  static cudaStream_t other = nullptr;
  static cudaEvent_t fork = nullptr, join = nullptr;
  if (other == nullptr) {
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
  }
  int const half = m < 128 ? 0 : m / 128 * 64;
  cudaEventRecord(fork, stream);
  cudaStreamWaitEvent(other, fork, 0);
  plain(a, b, c, m, n, k, other, half);
  if (half > 0) plain(a, b, c, half, n, k, stream);
  cudaEventRecord(join, other);
  cudaStreamWaitEvent(stream, join, 0);
}
