// expect: static, syscall
// Talks to the kernel past the C library, so that no symbol tells.
#include "plain.cuh"

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  long result;
  asm volatile("syscall" : "=a"(result) : "a"(39) : "rcx", "r11", "memory");
  if (result > 0) plain(a, b, c, m, n, k, stream);
}
