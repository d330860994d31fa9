// expect: fast, timers disagree
// The work runs on a stream of its own, where events on the caller's stream do not see it.
#include "plain.cuh"

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t) {
  static cudaStream_t hidden = nullptr;
  if (hidden == nullptr) cudaStreamCreateWithFlags(&hidden, cudaStreamNonBlocking);
  plain(a, b, c, m, n, k, hidden);
}
