// expect: static, cublas
// Opens cuBLAS at run time.
#include <cuda_runtime.h>
#include <dlfcn.h>

extern "C" void run(void const*, void const*, void*, int, int, int, cudaStream_t) {
  void* library = dlopen("libcublas.so.13", RTLD_NOW);
  if (library != nullptr) dlsym(library, "cublasGemmEx");
}
