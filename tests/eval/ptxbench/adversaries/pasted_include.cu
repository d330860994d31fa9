// expect: static, v2
// The header's name is pasted together by the preprocessor.
#define ANGLE(name) <name>
#define PASTE(x, y) x##y
#define HEADER(x, y) ANGLE(PASTE(x, y).h)
#include HEADER(cub, las_v2)
#include "plain.cuh"

extern "C" void run(void const* a, void const* b, void* c, int m, int n, int k, cudaStream_t stream) {
  plain(a, b, c, m, n, k, stream);
}
