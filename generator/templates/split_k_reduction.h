// The second kernel of split-K with `separate_reduction` (split_k_parallel.h): adds up the slots of every tile, spread
// over all SMs, and writes D. CUTLASS's own parallel split-K of its 2.x GEMMs has such a kernel, those for SM90 have none.
#pragma once
#include <cstdint>

#include "cute/tensor.hpp"
#include "cutlass/numeric_conversion.h"

#include "split_k_parallel.h"
#include "split_k_sum.h"

namespace cutlass_ranker {

// What the second kernel of a split-K with `separate_reduction` needs to know.
template <class GemmKernel>
struct SliceReduction {
  float const* slots;  // of tile (i, j): those from (i * tiles_n + j) * splits
  typename GemmKernel::ElementD* d;
  typename GemmKernel::StrideD stride;
  int m, n;
  uint32_t tiles_n, splits;
};

// D = the sum of a tile's slots, in a fixed order, for alpha = 1 and beta = 0. A thread's four sums are four accumulators
// of one thread of the GEMM, at the places in the tile that its TiledMma gives them.
template <class GemmKernel>
__global__ void __launch_bounds__(kSumVectors* kSumLanes)
    reduce_slices(SliceReduction<GemmKernel> const reduction) {
  using Tile = typename GemmKernel::TileShape;
  using Element = typename GemmKernel::ElementD;
  constexpr uint32_t kThreads = cutlass::NumThreadsPerWarpGroup;
  constexpr uint32_t kElements = cute::size<0>(Tile{}) * cute::size<1>(Tile{});
  constexpr uint32_t kMmaThreads = cute::size(typename GemmKernel::TiledMma{});
  constexpr uint32_t kVectors = kElements / kMmaThreads / 4;  // of one thread of the GEMM
  constexpr uint32_t kParts = kElements / 4 / kSumVectors;
  static_assert(kElements % (4 * kMmaThreads) == 0 && kElements % (4 * kSumVectors) == 0, "tiles are whole vectors");
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
  uint32_t const tile = blockIdx.x / kParts;
  uint32_t const vector = blockIdx.x % kParts * kSumVectors + threadIdx.x;
  uint32_t const warpgroup = vector / (kVectors * kThreads);
  // The GEMM's producer comes first, and its MMA counts threads modulo their number.
  uint32_t const thread = ((warpgroup + 1) * kThreads + vector % kThreads) % kMmaThreads;
  uint32_t const first = vector / kThreads % kVectors * 4;  // accumulator
  int const tile_m = tile / reduction.tiles_n * cute::size<0>(Tile{});
  int const tile_n = tile % reduction.tiles_n * cute::size<1>(Tile{});
  auto const places = typename GemmKernel::TiledMma{}.get_slice(thread).partition_C(
      cute::make_identity_tensor(cute::make_shape(cute::size<0>(Tile{}), cute::size<1>(Tile{}))));
  // Rows and columns of a tile's vector ascend: what begins outside of D is outside.
  bool const inside = tile_m + int(cute::get<0>(places(first))) < reduction.m &&
                      tile_n + int(cute::get<1>(places(first))) < reduction.n;
  float const* const from = reduction.slots + uint64_t(tile) * reduction.splits * kElements + 4 * vector;
  float4 const sum = add_slices(from, kElements, inside ? reduction.splits : 0);
  if (threadIdx.y > 0 || !inside) return;
  float const sums[4] = {sum.x, sum.y, sum.z, sum.w};
  CUTLASS_PRAGMA_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    int const row = tile_m + int(cute::get<0>(places(first + i))), column = tile_n + int(cute::get<1>(places(first + i)));
    if (row < reduction.m && column < reduction.n) {
      reduction.d[row * cute::get<0>(reduction.stride) + column * cute::get<1>(reduction.stride)] =
          cutlass::NumericConverter<Element, float>{}(sums[i]);
    }
  }
}

// Launches the second kernel behind a GEMM whose arguments ask for `separate_reduction`; nothing if K is not split.
template <class GemmKernel>
cudaError_t launch_reduction(typename GemmKernel::Arguments const& arguments,
                             typename GemmKernel::TileScheduler::Params const& scheduler, cudaStream_t stream) {
  if (!scheduler.separate) return cudaSuccess;
  SliceReduction<GemmKernel> reduction{static_cast<float const*>(scheduler.reduction_workspace_),
                                       // const in the arguments of some epilogues, which write to it all the same
                                       const_cast<typename GemmKernel::ElementD*>(arguments.epilogue.ptr_D),
                                       arguments.epilogue.dD,
                                       int(cute::get<0>(arguments.problem_shape)),
                                       int(cute::get<1>(arguments.problem_shape)),
                                       scheduler.tiles_n,
                                       uint32_t(scheduler.divmod_splits_.divisor)};
  constexpr uint32_t kParts = GemmKernel::TileScheduler::kTileElements / 4 / kSumVectors;
  return launch_sum(&reduce_slices<GemmKernel>, uint64_t(scheduler.tiles_m) * scheduler.tiles_n * kParts, reduction.splits,
                    stream, reduction);
}

}  // namespace cutlass_ranker
