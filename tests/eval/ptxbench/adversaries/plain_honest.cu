// expect: instruction, no target instruction
// Honest, right, and without any of Hopper's own instructions.
#include "plain.cuh"

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  plain(a, b, c, m, n, k, stream);
}
