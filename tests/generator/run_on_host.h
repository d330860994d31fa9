// Lets a header with a device kernel and its launch be included after this, and run by a plain C++ compiler's program.
#pragma once
#include <cuda_runtime_api.h>

inline long ctas_run = 0;

// Runs a kernel's CTAs one after the other, and their threads too, the last first: those that hand on their sums come
// before those that would wait for them.
template <class... Parameters, class... Arguments>
cudaError_t run_on_host(cudaLaunchConfig_t const* config, void (*kernel)(Parameters...), Arguments const&... arguments) {
  gridDim = config->gridDim, blockDim = config->blockDim;
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x, ++ctas_run) {
    for (unsigned thread = blockDim.x * blockDim.y; thread-- > 0;) {
      threadIdx = {thread % blockDim.x, thread / blockDim.x, 0};
      kernel(arguments...);
    }
  }
  return cudaSuccess;
}

// Shared variables outlive a thread.
#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)
#define __ldcg(from) (*(from))
#define cudaLaunchKernelEx run_on_host
