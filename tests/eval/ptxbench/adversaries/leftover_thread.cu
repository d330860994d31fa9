// expect: fast, outside
// A thread that the first call leaves behind keeps the GPU busy between calls.
#include <chrono>
#include <thread>

#include "plain.cuh"

__global__ void busy() {}

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  static bool started = false;
  if (!started) {
    started = true;
    std::thread([] {
      cudaStream_t own;
      cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
      for (;;) {
        busy<<<1, 1, 0, own>>>();
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }).detach();
  }
  plain(a, b, c, m, n, k, stream);
}
