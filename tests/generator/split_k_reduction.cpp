// Split-K with a second kernel, run on the host as it stands: the scheduler's fixup() stores every slice's accumulators,
// launch_reduction() adds them up and writes D. A thread's accumulators hold what the PTX ISA says that they do after a
// WGMMA, so that D is right only if both kernels agree with it about which element is where. Compiled by a plain C++
// compiler, for which CUTLASS's device functions are ordinary ones.
#include <vector_functions.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cute/tensor.hpp"
#include "cutlass/numeric_conversion.h"

// PTX is left out. What matters of it, the stores of partial sums, comes below.
#define volatile(...) ("")
#include "split_k_parallel.h"

#include "run_on_host.h"
#include "split_k_reduction.h"
#undef volatile

namespace {

#define REQUIRE(condition)                                                           \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::printf("line %d: %s (tile %dx%d)\n", __LINE__, #condition, tile_m, tile_n); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)

int tile_m, tile_n;  // of the kernel that runs
long elements_seen = 0;
float const kNothing = std::nanf("");
std::vector<float> slots;
std::vector<int> stores;  // to each element of a slot

// Cooperative kernels of CUTLASS 4.2: one producer warpgroup, then two that compute.
constexpr int kThreads = 128, kWarpgroups = 2;

template <int TileM, int TileN, int ClusterM, int ClusterN>
struct Kernel {
  using TileShape = cute::Shape<cute::Int<TileM>, cute::Int<TileN>, cute::_64>;
  using ClusterShape = cute::Shape<cute::Int<ClusterM>, cute::Int<ClusterN>, cute::_1>;
  using Operand = cutlass::bfloat16_t;
  using TiledMma = decltype(cute::make_tiled_mma(cute::SM90::GMMA::ss_op_selector<Operand, Operand, float, TileShape>(),
                                                 cute::Layout<cute::Shape<cute::_2, cute::_1, cute::_1>>{}));
  using TileScheduler = cutlass_ranker::ParallelSplitK<TileShape, ClusterShape>;
  using ElementD = float;
  using StrideD = cute::Stride<int64_t, int64_t, int64_t>;
  struct Arguments {
    cute::Shape<int, int, int, int> problem_shape;
    struct {
      float const* ptr_D;
      StrideD dD;
    } epilogue;
  };
};

// Which element of the tile an accumulator of one of the MMA's threads is. PTX ISA, wgmma.mma_async.m64nNk16, matrix D:
// warp w of a warpgroup has rows 16w to 16w + 15; four neighbouring lanes share a row, and each has two neighbouring
// columns of every eight, of the upper eight rows first, then of the lower. The two warpgroups' 64 rows follow each
// other.
template <int TileN>
void place(int thread, int accumulator, int& row, int& column) {
  int const lane = thread % 32, warp = thread % kThreads / 32, i = accumulator % (TileN / 2);
  row = accumulator / (TileN / 2) * 128 + thread / kThreads * 64 + warp * 16 + lane / 4 + i / 2 % 2 * 8;
  column = i / 4 * 8 + lane % 4 * 2 + i % 2;
}

template <class K, int TileN>
void run(int m, int n, int k, int splits, bool column_major, int swizzle) {
  using Tile = typename K::TileShape;
  using Cluster = typename K::ClusterShape;
  using Scheduler = typename K::TileScheduler;
  constexpr int kTileM = cute::size<0>(Tile{});
  tile_m = kTileM, tile_n = TileN;
  cute::Shape<int, int, int, int> const shape{m, n, k, 1};
  cutlass::KernelHardwareInfo const hardware{0, 132, 132 / int(cute::size(Cluster{}))};
  typename Scheduler::Arguments scheduling{};
  scheduling.splits = splits;
  scheduling.max_swizzle_size = swizzle;
  scheduling.decomposition_mode = Scheduler::DecompositionMode::SplitK;
  scheduling.parallel_reduction = scheduling.separate_reduction = true;
  size_t const bytes =
      Scheduler::template get_workspace_size<decltype(shape), float>(scheduling, shape, hardware, kWarpgroups);
  slots.assign(bytes / sizeof(float), kNothing);
  stores.assign(slots.size(), 0);
  auto const params = Scheduler::to_underlying_arguments(shape, Tile{}, Cluster{}, hardware, scheduling, slots.data());
  REQUIRE(params.separate);

  // A k-tile adds (row of D) * 1024 + column + its own number; what is outside of D is no number.
  uint64_t const units = params.units_per_problem_ * splits;
  auto accumulators = cute::partition_fragment_C(typename K::TiledMma{}, cute::take<0, 2>(Tile{}));
  static_assert(cute::size(accumulators) == kTileM * TileN / (kThreads * kWarpgroups), "all accumulators of a thread");
  for (uint64_t unit = 0; unit < units; ++unit) {
    uint32_t start = 0;
    auto const work = Scheduler::get_current_work_for_linear_idx(start, unit, dim3(0, 0, 0), params);
    REQUIRE(work.is_valid() && !Scheduler::compute_epilogue(work, params));
    for (int warpgroup = 0; warpgroup < kWarpgroups; ++warpgroup) {
      for (int t = 0; t < kThreads; ++t) {
        threadIdx.x = (1 + warpgroup) * kThreads + t;
        int const thread = threadIdx.x % (kThreads * kWarpgroups);  // that the MMA is told
        for (int i = 0; i < int(cute::size(accumulators)); ++i) {
          int row, column;
          place<TileN>(thread, i, row, column);
          row += work.M_idx * kTileM, column += work.N_idx * TileN;
          float sum = row < m && column < n ? 0.0f : kNothing;
          for (uint32_t j = 0; j < work.k_tile_count; ++j) sum += float(row * 1024 + column + int(work.K_idx + j));
          accumulators.data()[i] = sum;
        }
        Scheduler::fixup(params, work, accumulators, kWarpgroups, warpgroup);
      }
    }
  }
  for (int count : stores) REQUIRE(count == 1);

  // A frame around D that has to stay as it is.
  int const rows = m + 2, columns = n + 2;
  int64_t const stride_m = column_major ? 1 : columns, stride_n = column_major ? rows : 1;
  std::vector<float> d(size_t(rows) * columns, -1.0f);
  typename K::Arguments const arguments{shape, {d.data() + stride_m + stride_n, {stride_m, stride_n, 0}}};
  REQUIRE((cutlass_ranker::launch_reduction<K>(arguments, params, nullptr) == cudaSuccess));
  int const k_tiles = (k + 63) / 64;
  for (int row = -1; row <= m; ++row) {
    for (int column = -1; column <= n; ++column) {
      bool const inside = row >= 0 && row < m && column >= 0 && column < n;
      // Exact: less than 2^24.
      float const expected = inside ? float((row * 1024 + column) * k_tiles + k_tiles * (k_tiles - 1) / 2) : -1.0f;
      REQUIRE(d[(row + 1) * stride_m + (column + 1) * stride_n] == expected);
      ++elements_seen;
    }
  }
}

template <int TileM, int TileN, int ClusterM, int ClusterN>
void run_all() {
  using K = Kernel<TileM, TileN, ClusterM, ClusterN>;
  // Whole tiles; ragged and padded, with a swizzle, more slices than lanes of the second kernel.
  run<K, TileN>(TileM, 2 * TileN, 1024, 2, false, 1);
  for (bool column_major : {false, true}) run<K, TileN>(TileM + 72, 2 * TileN + 8, 1288, 13, column_major, 2);
}

using Small = Kernel<128, 16, 1, 2>;
using Wide = Kernel<128, 256, 2, 1>;
using Tall = Kernel<256, 48, 1, 1>;

void store_four(float* to, float const* from) {
  for (int i = 0; i < 4; ++i) {
    REQUIRE(to + i >= slots.data() && to + i < slots.data() + slots.size());
    to[i] = from[i];
    ++stores[to + i - slots.data()];
  }
}

}  // namespace

namespace cutlass_ranker {

#define STORE(K) \
  template <>    \
  void K::TileScheduler::store(float* to, float const* from) { store_four(to, from); }
STORE(Small)
STORE(Wide)
STORE(Tall)

}  // namespace cutlass_ranker

int main() {
  run_all<128, 16, 1, 2>();
  run_all<128, 256, 2, 1>();
  run_all<256, 48, 1, 1>();
  std::printf("%ld elements, %ld CTAs\n", elements_seen, ctas_run);
}
