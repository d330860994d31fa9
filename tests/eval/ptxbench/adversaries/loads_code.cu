// expect: static, loads code
// Brings its kernel as data and loads it at run time.
#include <cuda.h>
#include <cuda_runtime.h>

static unsigned char const image[64] = {0x50, 0xED, 0x55, 0xBA};

extern "C" void run(void const*, void const*, void*, int, int, int, cudaStream_t) {
  CUmodule loaded;
  cuModuleLoadData(&loaded, image);
}
