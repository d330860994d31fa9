// Parallel split-K on the host, in the order of the scheduler's work indices: which slot each slice writes, which it
// reads, and that the last slice of every tile ends with the sum of all; with a second kernel, that each slice of a tile
// that is not padding has a slot. Compiled by a plain C++ compiler, for which CUTLASS's device functions are ordinary
// ones.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "split_k_parallel.h"

namespace {

#define REQUIRE(condition)                                                            \
  do {                                                                                \
    if (!(condition)) {                                                               \
      std::printf("line %d: %s (m %d n %d k %d, %d splits, swizzle %d, raster %d)\n", \
                  __LINE__, #condition, m, n, k, splits, swizzle, raster);            \
      std::exit(1);                                                                   \
    }                                                                                 \
  } while (0)

constexpr uint32_t kWarpgroups = 2;
long launches = 0, grouped = 0, slices_seen = 0;

template <int TileM, int TileN, int TileK, int ClusterM, int ClusterN>
void check(int m, int n, int k, int splits, int swizzle, int raster) {
  using Tile = cute::Shape<cute::Int<TileM>, cute::Int<TileN>, cute::Int<TileK>>;
  using Cluster = cute::Shape<cute::Int<ClusterM>, cute::Int<ClusterN>, cute::_1>;
  using Scheduler = cutlass_ranker::ParallelSplitK<Tile, Cluster>;
  using Raster = typename Scheduler::RasterOrderOptions;
  using Shape = cute::Shape<int, int, int, int>;
  Shape const shape{m, n, k, 1};
  cutlass::KernelHardwareInfo hardware{0, 132, 132 / (ClusterM * ClusterN)};
  typename Scheduler::Arguments arguments{};
  arguments.splits = splits;
  arguments.max_swizzle_size = swizzle;
  arguments.raster_order = raster == 0 ? Raster::Heuristic : raster == 1 ? Raster::AlongM : Raster::AlongN;
  arguments.decomposition_mode = Scheduler::DecompositionMode::SplitK;
  arguments.parallel_reduction = true;
  REQUIRE(Scheduler::can_implement(arguments));
  auto const params = Scheduler::to_underlying_arguments(shape, Tile{}, Cluster{}, hardware, arguments, nullptr);
  size_t const bytes = Scheduler::template get_workspace_size<Shape, float>(arguments, shape, hardware, kWarpgroups);

  // By counting: tiles rounded up to clusters and swizzle, splits clamped to k-tiles and SMs.
  auto const up = [](int value, int unit) { return (value + unit - 1) / unit; };
  int const k_tiles = up(k, TileK);
  int const expected_splits = std::min({splits, k_tiles, 132});
  int const clusters_m = up(up(m, TileM), ClusterM), clusters_n = up(up(n, TileN), ClusterN);
  int const shorter = std::min(clusters_m * ClusterM, clusters_n * ClusterN);
  int const width = swizzle >= 8 && shorter >= 6 ? 8 : swizzle >= 4 && shorter >= 3 ? 4 : swizzle >= 2 && shorter >= 2 ? 2 : 1;
  uint64_t const tiles = uint64_t(up(clusters_m, width) * width * ClusterM) * (up(clusters_n, width) * width * ClusterN);
  REQUIRE(int(params.divmod_splits_.divisor) == expected_splits);
  REQUIRE(params.units_per_problem_ == tiles);

  auto asked = arguments;
  asked.separate_reduction = true;
  REQUIRE(Scheduler::can_implement(asked));
  auto const separate = Scheduler::to_underlying_arguments(shape, Tile{}, Cluster{}, hardware, asked, nullptr);
  size_t const separate_bytes = Scheduler::template get_workspace_size<Shape, float>(asked, shape, hardware, kWarpgroups);
  REQUIRE(!params.separate && separate.separate == (expected_splits > 1));
  REQUIRE(separate.units_per_problem_ == tiles && int(separate.divmod_splits_.divisor) == expected_splits);
  if (expected_splits == 1) {
    REQUIRE(params.fan_in == 0 && bytes == 0);
    REQUIRE(separate.fan_in == 0 && separate_bytes == 0);
    for (uint64_t index = 0; index < tiles; ++index) {
      uint32_t start = 0;
      auto const work = Scheduler::get_current_work_for_linear_idx(start, index, dim3(0, 0, 0), separate);
      REQUIRE(work.is_valid() && Scheduler::compute_epilogue(work, separate));
    }
    return;
  }
  REQUIRE(params.fan_in >= 2 && params.fan_in <= uint32_t(expected_splits));
  uint64_t const slots = tiles * (expected_splits - 1);
  uint64_t const slot_bytes = uint64_t(TileM) * TileN * 4;
  REQUIRE(bytes == slots * slot_bytes + (slots * kWarpgroups * 4 + 127) / 128 * 128);
  REQUIRE(Scheduler::partial_bytes(params) == slots * slot_bytes);
  // No slots of padding, and no flags to be given or not.
  int const real_m = up(m, TileM), real_n = up(n, TileN);
  uint64_t const separate_slots = uint64_t(real_m) * real_n * expected_splits;
  REQUIRE(separate_bytes == separate_slots * slot_bytes && Scheduler::partial_bytes(separate) == separate_bytes);
  REQUIRE(Scheduler::flag_bytes(separate, kWarpgroups) == 0);
  uint32_t flag;  // only its address is looked at
  asked.flags = &flag;
  REQUIRE((Scheduler::template get_workspace_size<Shape, float>(asked, shape, hardware, kWarpgroups) == separate_bytes));
  ++launches;
  grouped += params.fan_in < uint32_t(expected_splits);

  std::vector<double> value(slots, 0.0);   // what each slot holds
  std::vector<int> written(slots, 0), read(slots, 0), stored(separate_slots, 0);
  std::map<std::pair<int, int>, std::vector<int>> covered;  // k-tiles of each tile, by (m, n)
  std::set<uint64_t> finished;
  uint64_t const units = tiles * expected_splits;
  for (uint64_t index = 0; index < units; ++index) {
    // The CTA's place in the cluster follows from the index here; the scheduler works it out again by itself.
    uint32_t start = 0;
    auto const work = Scheduler::get_current_work_for_linear_idx(start, index, dim3(0, 0, 0), params);
    REQUIRE(work.is_valid() && Scheduler::requires_fixup(params, work));
    uint64_t const tile = Scheduler::output_tile_index(params, work);
    uint32_t const slice = Scheduler::slice_index(params, work);
    REQUIRE(tile < tiles && slice < uint32_t(expected_splits));
    REQUIRE(Scheduler::requires_fixup(separate, work) && !Scheduler::compute_epilogue(work, separate));
    if (work.M_idx < real_m && work.N_idx < real_n) {
      ++stored[(uint64_t(work.M_idx) * real_n + work.N_idx) * expected_splits + Scheduler::slice_index(separate, work)];
    }
    auto& seen = covered[{work.M_idx, work.N_idx}];
    seen.resize(k_tiles);
    double own = 0.0;
    for (uint32_t t = 0; t < work.k_tile_count; ++t) {
      ++seen[work.K_idx + t];
      own += double(tile + 1) * (work.K_idx + t + 1);
    }
    uint64_t const first = tile * (expected_splits - 1);
    bool published = false;
    cutlass_ranker::combine_slices(
        slice, expected_splits, params.fan_in,
        [&](uint32_t from, uint32_t stride, uint32_t count) {
          REQUIRE(count < params.fan_in);
          for (uint32_t i = 0; i < count; ++i) {
            uint64_t const slot = first + from + i * stride;
            REQUIRE(from + i * stride < slice);  // waits for smaller work indices only
            REQUIRE(slot < slots && written[slot] == 1);
            ++read[slot];
            own += value[slot];
          }
        },
        [&] {
          uint64_t const slot = first + slice;
          REQUIRE(slot < slots && written[slot] == 0);
          value[slot] = own;
          written[slot] = 1;
          published = true;
        });
    bool const last = Scheduler::compute_epilogue(work, params);
    REQUIRE(published != last);
    REQUIRE(last == (slice + 1 == uint32_t(expected_splits)));
    if (last) {
      REQUIRE(finished.insert(tile).second);
      REQUIRE(own == double(tile + 1) * (double(k_tiles) * (k_tiles + 1) / 2));  // exact in a double
    }
    ++slices_seen;
  }
  REQUIRE(finished.size() == tiles);
  for (uint64_t slot = 0; slot < slots; ++slot) REQUIRE(written[slot] == 1 && read[slot] == 1);
  for (int count : stored) REQUIRE(count == 1);
  REQUIRE(covered.size() == tiles);
  for (auto const& entry : covered) {
    for (int count : entry.second) REQUIRE(count == 1);
  }
  uint32_t start = 0;
  REQUIRE(!Scheduler::get_current_work_for_linear_idx(start, units, dim3(0, 0, 0), params).is_valid());
}

template <int TileM, int TileN, int TileK, int ClusterM, int ClusterN>
void check_shapes() {
  int const shapes[][3] = {{16, 16, 8}, {128, 128, 4096}, {1000, 520, 8200}, {130, 2056, 2048}, {640, 1100, 65536}};
  for (auto const& s : shapes) {
    for (int splits : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 31, 64, 132, 200}) {
      for (int raster = 0; raster < 3; ++raster) check<TileM, TileN, TileK, ClusterM, ClusterN>(s[0], s[1], s[2], splits, 1, raster);
      for (int swizzle : {2, 4, 8}) check<TileM, TileN, TileK, ClusterM, ClusterN>(s[0], s[1], s[2], splits, swizzle, 1);
    }
  }
}

}  // namespace

int main() {
  check_shapes<128, 16, 128, 1, 1>();
  check_shapes<128, 64, 64, 1, 4>();
  check_shapes<128, 128, 64, 2, 1>();
  check_shapes<256, 128, 64, 1, 1>();
  check_shapes<128, 256, 64, 2, 2>();
  // A plain launch is CUTLASS's own.
  using Scheduler = cutlass_ranker::ParallelSplitK<cute::Shape<cute::_128, cute::_64, cute::_64>, cute::Shape<cute::_1, cute::_1, cute::_1>>;
  typename Scheduler::Arguments plain{};
  plain.splits = 4;
  plain.decomposition_mode = Scheduler::DecompositionMode::SplitK;
  cute::Shape<int, int, int, int> const shape{256, 64, 4096, 1};
  cutlass::KernelHardwareInfo const hardware{0, 132, 132};
  // Two tiles of 32 KiB, then two counters each.
  bool right = Scheduler::get_workspace_size<decltype(shape), float>(plain, shape, hardware, 2) == 2 * 32768 + 128;
  plain.parallel_reduction = true;
  right = right && Scheduler::can_implement(plain);
  // Two tiles of three slots of 32 KiB and, unless the caller has them, a flag for each of two warpgroups.
  right = right && Scheduler::get_workspace_size<decltype(shape), float>(plain, shape, hardware, 2) == 2 * 3 * 32768 + 128;
  uint32_t flags[2 * 3 * 2];
  plain.flags = flags;
  right = right && Scheduler::get_workspace_size<decltype(shape), float>(plain, shape, hardware, 2) == 2 * 3 * 32768;
  // For a second kernel a fourth slot each, and flags play no part.
  auto separate = plain;
  separate.separate_reduction = true;
  right = right && Scheduler::can_implement(separate);
  right = right && Scheduler::get_workspace_size<decltype(shape), float>(separate, shape, hardware, 2) == 2 * 4 * 32768;
  separate.flags = nullptr;
  right = right && Scheduler::get_workspace_size<decltype(shape), float>(separate, shape, hardware, 2) == 2 * 4 * 32768;
  // A second kernel only behind parallel split-K.
  separate.parallel_reduction = false;
  right = right && !Scheduler::can_implement(separate);
  for (bool parallel : {false, true}) {
    separate.splits = 1;
    separate.decomposition_mode = Scheduler::DecompositionMode::StreamK;
    separate.parallel_reduction = parallel;
    right = right && !Scheduler::can_implement(separate);
  }
  plain.splits = 1;
  plain.decomposition_mode = Scheduler::DecompositionMode::StreamK;
  right = right && !Scheduler::can_implement(plain);
  std::printf("%ld launches, %ld grouped, %ld slices\n", launches, grouped, slices_seen);
  return right && launches > 1000 && grouped > 100 ? 0 : 2;
}
