// Prints what CUTLASS's SM90 schedulers decide for a list of cases on an H200's 132 SMs. Needs CUTLASS 4.2 and no GPU:
// nvcc -std=c++17 -I <cutlass>/include scheduler.cu -o scheduler && ./scheduler > scheduler.csv
#include <cstdio>

#include "cutlass/gemm/kernel/tile_scheduler_params.h"

using namespace cutlass;
using namespace cutlass::gemm;
using Params = kernel::detail::PersistentTileSchedulerSm90StreamKParams;
using Base = kernel::detail::PersistentTileSchedulerSm90Params;

struct Case {
  int m, n, k, tile_m, tile_n, tile_k, cluster_m, cluster_n, swizzle, raster, mode, splits;
};

int main() {
  puts("m,n,k,tile_m,tile_n,tile_k,cluster_m,cluster_n,swizzle,decomposition,asked_splits,splits,sk_tiles,sk_units,units,grid,"
       "along_m,log_swizzle,k_tiles,workspace");
  static Case const problems[] = {{4096, 4096, 4096}, {256, 256, 16384}, {16, 8192, 8192}, {8192, 7168, 5120}, {1000, 3000, 520}};
  static Case const tiles[] = {{0, 0, 0, 128, 128, 64}, {0, 0, 0, 256, 128, 64}, {0, 0, 0, 128, 16, 128}};
  static int const clusters[][2] = {{1, 1}, {2, 1}, {1, 4}, {4, 2}};
  static int const launches[][2] = {{0, 1}, {2, 1}, {2, 5}, {1, 1}, {3, 1}};  // decomposition, splits
  for (auto const& p : problems)
    for (auto const& t : tiles)
      for (auto const& c : clusters)
        for (auto const& l : launches)
          for (int swizzle : {1, 8}) {
            Case x{p.m, p.n, p.k, t.tile_m, t.tile_n, t.tile_k, c[0], c[1], swizzle, 0, l[0], l[1]};
            Params::DecompositionMode const modes[] = {
                Params::DecompositionMode::Heuristic, Params::DecompositionMode::DataParallel,
                Params::DecompositionMode::SplitK, Params::DecompositionMode::StreamK};
            int const size = x.cluster_m * x.cluster_n;  // clusters active at a time on an H200
            KernelHardwareInfo info{0, 132, size == 1 ? 132 : size == 2 ? 66 : size == 4 ? 30 : 15};
            BatchedGemmCoord shape(x.m, x.n, x.k, 1);
            GemmCoord tile(x.tile_m, x.tile_n, x.tile_k), cluster(x.cluster_m, x.cluster_n, 1);
            auto raster = Base::RasterOrderOptions::Heuristic;
            auto reduction = Params::ReductionMode::Deterministic;
            Params params;
            params.initialize(shape, tile, cluster, info, x.splits, x.swizzle, raster, reduction, modes[x.mode], nullptr);
            dim3 grid = Params::get_grid_shape(shape, tile, cluster, info, x.swizzle, raster);
            uint32_t k_tiles = (x.k + x.tile_k - 1) / x.tile_k;
            size_t total = Params::get_workspace_size(shape, tile, cluster, info, x.splits, x.swizzle, raster, modes[x.mode],
                                                      reduction, 2, 32, 32, 1, 1);
            printf("%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%u,%u,%llu,%u,%d,%d,%u,%zu\n", x.m, x.n, x.k, x.tile_m, x.tile_n,
                   x.tile_k, x.cluster_m, x.cluster_n, x.swizzle, x.mode, x.splits, int(params.divmod_splits_.divisor),
                   params.sk_tiles_, params.sk_units_, (unsigned long long)params.units_per_problem_, grid.x * grid.y,
                   params.raster_order_ == Base::RasterOrder::AlongM, params.log_swizzle_size_, k_tiles, total);
          }
}
