// What the second kernels of split-K have in common: how a CTA adds up the partial sums of slices of K.
#pragma once
#include <cstdint>

#include "cutlass/cutlass.h"

namespace cutlass_ranker {

constexpr uint32_t kSumVectors = 32;  // of four partial sums, that one CTA adds up
constexpr uint32_t kSumLanes = 8;     // threads that share the slices of such a vector
constexpr uint32_t kSumLoads = 4;     // loads of a thread that are under way at a time

// Adds up the vectors at from, from + stride, ... (`slices` of them), in a fixed order; every thread of the CTA calls it,
// with (vector, lane) as its index. The sum is the result of lane 0. Without slices it is zero.
CUTLASS_DEVICE float4 add_slices(float const* from, uint64_t stride, uint32_t slices) {
  __shared__ float4 shared[kSumLanes - 1][kSumVectors];
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  auto const add = [&sum](float4 const& x) { sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w; };
  uint32_t const lanes = blockDim.y;
  CUTLASS_PRAGMA_NO_UNROLL
  for (uint32_t begin = threadIdx.y; begin < slices; begin += lanes * kSumLoads) {
    float4 part[kSumLoads];
    CUTLASS_PRAGMA_UNROLL
    for (uint32_t i = 0; i < kSumLoads; ++i) {
      uint32_t const slice = begin + i * lanes;
      part[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (slice < slices) part[i] = __ldcg(reinterpret_cast<float4 const*>(from + slice * stride));
    }
    CUTLASS_PRAGMA_UNROLL
    for (uint32_t i = 0; i < kSumLoads; ++i) add(part[i]);
  }
  if (threadIdx.y > 0) shared[threadIdx.y - 1][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0) {
    for (uint32_t lane = 1; lane < lanes; ++lane) add(shared[lane - 1][threadIdx.x]);
  }
  return sum;
}

// Launches such a kernel behind the GEMM whose slices it adds up: one CTA for each kSumVectors vectors. Its
// `griddepcontrol.wait` lets it start while that ends.
template <class... Parameters, class... Arguments>
cudaError_t launch_sum(void (*kernel)(Parameters...), uint64_t blocks, uint32_t splits, cudaStream_t stream,
                       Arguments... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<uint32_t>(blocks));
  config.blockDim = dim3(kSumVectors, splits < kSumLanes ? splits : kSumLanes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace cutlass_ranker
