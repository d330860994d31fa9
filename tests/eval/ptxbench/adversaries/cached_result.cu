// expect: correct, wrong
// Computes each size once and hands the first result out again, whatever the inputs are.
#include <map>

#include "plain.cuh"

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  static std::map<int, void*> results;
  size_t const bytes = size_t(2) * m * n;
  void*& kept = results[m];
  if (kept == nullptr) {
    plain(a, b, c, m, n, k, stream);
    cudaMalloc(&kept, bytes);
    cudaMemcpyAsync(kept, c, bytes, cudaMemcpyDeviceToDevice, stream);
  } else {
    cudaMemcpyAsync(c, kept, bytes, cudaMemcpyDeviceToDevice, stream);
  }
}
