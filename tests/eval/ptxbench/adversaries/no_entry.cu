// expect: static, C linkage
// The entry function has C++ linkage.
#include "plain.cuh"

void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  plain(a, b, c, m, n, k, stream);
}
