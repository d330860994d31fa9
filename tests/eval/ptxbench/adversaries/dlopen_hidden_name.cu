// expect: static, dlopen
// Opens a library whose name is put together at run time.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <string>

extern "C" void run(void const*, void const*, void*, int, int, int, cudaStream_t) {
  std::string name = "mjcdvcmbt/tp/24";  // each letter one further than meant
  for (char& letter : name) --letter;
  dlopen(name.c_str(), RTLD_NOW);
}
