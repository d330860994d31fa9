// Split-K whose slices are the matrices of a batch: the GEMM stores the float32 results of the slices one after the other,
// each laid out like D, and a second kernel adds them up on all SMs and writes D. Any SM90 kernel can be split so, those
// with tiles of 64 rows too, where CUTLASS's Stream-K scheduler needs the cooperative schedule.
#pragma once
#include <cstdint>

#include "cute/tensor.hpp"
#include "cutlass/numeric_conversion.h"

#include "split_k_sum.h"

namespace cutlass_ranker {

// Turns the arguments of a GEMM with packed operands and one matrix into those of `splits` slices of K, stored to `slices`.
template <class Arguments>
void slice_k(Arguments& arguments, int splits, float* slices) {
  auto& mainloop = arguments.mainloop;
  int64_t const k = cute::get<2>(arguments.problem_shape) / splits;
  cute::get<2>(mainloop.dA) = k * cute::get<1>(mainloop.dA);
  cute::get<2>(mainloop.dB) = k * cute::get<1>(mainloop.dB);
  int64_t const m = cute::get<0>(arguments.problem_shape), n = cute::get<1>(arguments.problem_shape);
  cute::get<2>(arguments.epilogue.dD) = m * n;
  arguments.epilogue.ptr_D = slices;
  cute::get<2>(arguments.problem_shape) = int(k);
  cute::get<3>(arguments.problem_shape) = splits;
}

// Bytes of the slices.
inline uint64_t slice_bytes(int m, int n, int splits) { return uint64_t(m) * n * splits * sizeof(float); }

// D = the sum of the slices, in a fixed order. `size` is M * N, a multiple of four.
template <class Element>
__global__ void __launch_bounds__(kSumVectors* kSumLanes)
    sum_slices(float const* slices, Element* d, uint64_t size, uint32_t splits) {
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
  uint64_t const first = (uint64_t(blockIdx.x) * kSumVectors + threadIdx.x) * 4;
  float4 const sum = add_slices(slices + first, size, first < size ? splits : 0);
  if (threadIdx.y > 0 || first >= size) return;
  cutlass::Array<float, 4> sums;
  sums[0] = sum.x, sums[1] = sum.y, sums[2] = sum.z, sums[3] = sum.w;
  *reinterpret_cast<cutlass::Array<Element, 4>*>(d + first) = cutlass::NumericArrayConverter<Element, float, 4>{}(sums);
}

template <class Element>
cudaError_t launch_sum_slices(float const* slices, Element* d, int m, int n, int splits, cudaStream_t stream) {
  uint64_t const size = uint64_t(m) * n, blocks = (size + 4 * kSumVectors - 1) / (4 * kSumVectors);
  return launch_sum(&sum_slices<Element>, blocks, splits, stream, slices, d, size, uint32_t(splits));
}

}  // namespace cutlass_ranker
