// Kernel types from template arguments, and the entry that offers one of them to the runner.
// An emitted unit names its kernels as `struct K0 : sm90::Gemm<...>::Kernel {};` (short symbols) and lists sm90::entry<K0>("name").
#pragma once
#include <new>
#include <type_traits>

#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"

#include "kernel_abi.h"
#include "split_k_reduction.h"
#include "split_k_slices.h"

namespace sm90 {

using Row = cutlass::layout::RowMajor;
using Col = cutlass::layout::ColumnMajor;
using Persistent = cutlass::gemm::PersistentScheduler;
using StreamK = cutlass_ranker::ParallelSplitKScheduler;
struct SplitK {};  // the persistent one over slices of K (split_k_slices.h)
using Warpspecialized = cutlass::gemm::KernelTmaWarpSpecialized;
using Pingpong = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
using Cooperative = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
using EpiNoSmem = cutlass::epilogue::NoSmemWarpSpecialized;
using EpiTma = cutlass::epilogue::TmaWarpSpecialized;
using EpiTmaCooperative = cutlass::epilogue::TmaWarpSpecializedCooperative;

// Element: A, B, D; slices of K are float. ElementC: the source, `void` for none. All operands are 16-byte aligned.
template <class Element, class ElementC, class LayoutA, class LayoutB, class LayoutD, int TileM, int TileN, int TileK,
          int ClusterM, int ClusterN, int Stages, class Schedule, class EpilogueSchedule, class EpilogueTile,
          class Scheduler>
struct Gemm {
  static constexpr bool Slices = std::is_same<Scheduler, SplitK>::value;
  using ElementD = cute::conditional_t<Slices, float, Element>;
  static constexpr int Alignment = 128 / cutlass::sizeof_bits<Element>::value;
  static constexpr int AlignmentD = 128 / cutlass::sizeof_bits<ElementD>::value;
  using Tile = cute::Shape<cute::Int<TileM>, cute::Int<TileN>, cute::Int<TileK>>;
  using Cluster = cute::Shape<cute::Int<ClusterM>, cute::Int<ClusterN>, cute::_1>;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster, EpilogueTile, float, float, ElementC, LayoutD,
      AlignmentD, ElementD, LayoutD, AlignmentD, EpilogueSchedule>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, LayoutA, Alignment, Element, LayoutB, Alignment,
      float, Tile, Cluster, cutlass::gemm::collective::StageCount<Stages>, Schedule>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue,
                                                      cute::conditional_t<Slices, Persistent, Scheduler>>;
};

// Flags of parallel split-K. They are zero between launches, of which one runs at a time.
inline constexpr uint64_t kFlagBytes = 256 << 10;
static __device__ uint32_t flags[kFlagBytes / sizeof(uint32_t)];

template <class K>
struct Entry {
  static constexpr bool kStreamK = std::is_same<typename K::TileSchedulerTag, StreamK>::value;
  static constexpr bool kSlices = !std::is_same<typename K::ElementD, typename K::ElementA>::value;
  using Arguments = typename K::Arguments;

  struct State {
    Arguments arguments;
    CrGemm gemm;
    typename K::Params params;
    void* workspace;
    dim3 grid;
  };

  static Arguments arguments(CrGemm const* gemm, CrLaunch const* launch) {
    using ElementA = typename K::ElementA;
    using ElementB = typename K::ElementB;
    using ElementC = typename K::ElementC;
    using ElementD = typename K::ElementD;
    int const m = gemm->m, n = gemm->n, k = gemm->k;
    Arguments args{};
    args.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    args.problem_shape = {m, n, k, 1};
    args.mainloop.ptr_A = static_cast<ElementA const*>(gemm->a);
    args.mainloop.dA = cutlass::make_cute_packed_stride(typename K::StrideA{}, {m, k, 1});
    args.mainloop.ptr_B = static_cast<ElementB const*>(gemm->b);
    args.mainloop.dB = cutlass::make_cute_packed_stride(typename K::StrideB{}, {n, k, 1});
    args.epilogue.thread.alpha = 1.0f;
    args.epilogue.thread.beta = 0.0f;
    if constexpr (!std::is_void<ElementC>::value) {
      args.epilogue.ptr_C = static_cast<ElementC const*>(gemm->d);
    }
    args.epilogue.dC = cutlass::make_cute_packed_stride(typename K::StrideC{}, {m, n, 1});
    if constexpr (!kSlices) args.epilogue.ptr_D = static_cast<ElementD*>(gemm->d);
    args.epilogue.dD = cutlass::make_cute_packed_stride(typename K::StrideD{}, {m, n, 1});
    args.hw_info.device_id = gemm->device;
    args.hw_info.sm_count = gemm->sm_count;
    args.hw_info.max_active_clusters = clusters();
    using Raster = cutlass::gemm::kernel::detail::RasterOrderOptions;
    args.scheduler.max_swizzle_size = launch->swizzle;
    args.scheduler.raster_order = launch->raster == 1   ? Raster::AlongM
                                  : launch->raster == 2 ? Raster::AlongN
                                                        : Raster::Heuristic;
    if constexpr (kStreamK) {
      using Mode = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90StreamKParams::DecompositionMode;
      using Reduction = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90StreamKParams::ReductionMode;
      bool const any_order = launch->decomposition == 4, separate = launch->decomposition == 6;
      bool const parallel = launch->decomposition == 5 || separate;
      bool const split = launch->decomposition == 2 || any_order || parallel;
      args.scheduler.splits = launch->splits;
      args.scheduler.decomposition_mode = launch->decomposition == 1   ? Mode::DataParallel
                                          : split                      ? Mode::SplitK
                                          : launch->decomposition == 3 ? Mode::StreamK
                                                                       : Mode::Heuristic;
      args.scheduler.reduction_mode = any_order ? Reduction::Nondeterministic : Reduction::Deterministic;
      args.scheduler.parallel_reduction = parallel;
      args.scheduler.separate_reduction = separate;
    }
    if constexpr (kSlices) cutlass_ranker::slice_k(args, launch->splits, static_cast<float*>(gemm->workspace));
    return args;
  }

  static uint64_t workspace_bytes(CrGemm const* gemm, CrLaunch const* launch) {
    if constexpr (kSlices) return cutlass_ranker::slice_bytes(gemm->m, gemm->n, launch->splits);
    return K::get_workspace_size(arguments(gemm, launch));
  }

  static int32_t prepare(CrGemm const* gemm, CrLaunch const* launch, void* memory) {
    if (clusters() == 0) return CR_REFUSED;
    if (launch->decomposition < 0 || launch->decomposition >= CR_DECOMPOSITIONS) return CR_REFUSED;
    if (kSlices && (launch->decomposition != 6 || launch->splits < 2 || gemm->k % launch->splits != 0)) return CR_REFUSED;
    if (!kStreamK && !kSlices && (launch->decomposition != 0 || launch->splits != 1)) return CR_REFUSED;
    State* state = new (memory) State{};
    state->gemm = *gemm;
    state->arguments = arguments(gemm, launch);
    if (!K::can_implement(state->arguments)) return CR_REFUSED;
    if constexpr (kStreamK) {
      if (launch->decomposition == 5 && !give_flags(state->arguments)) return CR_REFUSED;
    }
    state->workspace = K::get_workspace_size(state->arguments) ? gemm->workspace : nullptr;
    state->params = K::to_underlying_arguments(state->arguments, state->workspace);
    state->grid = K::get_grid_shape(state->params);
    return CR_OK;
  }

  static int32_t launch(void* memory, cudaStream_t stream) {
    State* state = static_cast<State*>(memory);
    if constexpr (kStreamK) {
      // CUTLASS's barriers in the workspace must be zero before every launch, or the next one can wait forever.
      if (state->workspace != nullptr &&
          K::initialize_workspace(state->arguments, state->workspace, stream) != cutlass::Status::kSuccess) {
        cudaGetLastError();
        return CR_LAUNCH_FAILED;
      }
    }
    cudaLaunchAttribute attribute = cluster_attribute();
    cudaLaunchConfig_t config{};
    config.gridDim = state->grid;
    config.blockDim = K::get_block_shape();
    config.dynamicSmemBytes = K::SharedStorageSize;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    void* parameters[] = {&state->params};
    if (cudaLaunchKernelExC(&config, kernel(), parameters) != cudaSuccess) {
      cudaGetLastError();
      return CR_LAUNCH_FAILED;
    }
    if constexpr (kStreamK) {
      if (cutlass_ranker::launch_reduction<K>(state->arguments, state->params.scheduler, stream) != cudaSuccess) {
        cudaGetLastError();
        return CR_LAUNCH_FAILED;
      }
    }
    if constexpr (kSlices) {
      auto const& gemm = state->gemm;
      auto const* slices = static_cast<float const*>(gemm.workspace);
      int const splits = cute::get<3>(state->arguments.problem_shape);
      if (cutlass_ranker::launch_sum_slices(slices, static_cast<typename K::ElementA*>(gemm.d), gemm.m, gemm.n, splits,
                                            stream) != cudaSuccess) {
        cudaGetLastError();
        return CR_LAUNCH_FAILED;
      }
    }
    return CR_OK;
  }

  static void grid(void const* memory, int32_t* xyz) {
    State const* state = static_cast<State const*>(memory);
    xyz[0] = static_cast<int32_t>(state->grid.x);
    xyz[1] = static_cast<int32_t>(state->grid.y);
    xyz[2] = static_cast<int32_t>(state->grid.z);
  }

 private:
  // Has a launch use the unit's flags where they suffice; false if the device does not have them.
  static bool give_flags(Arguments& args) {
    uint64_t const with_flags = K::get_workspace_size(args);
    void* address = nullptr;
    if (cudaGetSymbolAddress(&address, flags) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    args.scheduler.flags = static_cast<uint32_t*>(address);
    if (with_flags - K::get_workspace_size(args) > kFlagBytes) args.scheduler.flags = nullptr;
    return true;
  }

  static void const* kernel() { return reinterpret_cast<void const*>(&cutlass::device_kernel<K>); }

  static cudaLaunchAttribute cluster_attribute() {
    using Cluster = typename K::DispatchPolicy::ClusterShape;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cute::size<0>(Cluster{});
    attribute.val.clusterDim.y = cute::size<1>(Cluster{});
    attribute.val.clusterDim.z = 1;
    return attribute;
  }

  // Clusters that run at the same time with one CTA per SM, which sizes a persistent grid; 0 if the device cannot run
  // the kernel. Asked once per process. Without it CUTLASS assumes a fixed layout of SMs and leaves some idle.
  static int clusters() {
    static int const count = query_clusters();
    return count;
  }

  static int query_clusters() {
    cudaLaunchAttribute attribute = cluster_attribute();
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(attribute.val.clusterDim.x, attribute.val.clusterDim.y, 1);
    config.blockDim = K::get_block_shape();
    config.dynamicSmemBytes = cutlass::gemm::collective::detail::sm90_smem_capacity_bytes;  // all of it: one CTA per SM
    config.attrs = &attribute;
    config.numAttrs = 1;
    int count = 0;
    bool const known =
        cudaFuncSetAttribute(kernel(), cudaFuncAttributeMaxDynamicSharedMemorySize, config.dynamicSmemBytes) == cudaSuccess &&
        cudaFuncSetAttribute(kernel(), cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess &&
        cudaOccupancyMaxActiveClusters(&count, kernel(), &config) == cudaSuccess;
    cudaGetLastError();
    return known ? count : 0;
  }
};

template <class K>
CrKernel entry(char const* name) {
  using E = Entry<K>;
  return CrKernel{name,
                  static_cast<int32_t>(K::SharedStorageSize),
                  static_cast<int32_t>(K::MaxThreadsPerBlock),
                  sizeof(typename E::State),
                  &E::workspace_bytes,
                  &E::prepare,
                  &E::launch,
                  &E::grid};
}

}  // namespace sm90

// A unit is one translation unit, so this is defined once.
extern "C" __attribute__((visibility("default"))) int32_t cr_decompositions() { return CR_DECOMPOSITIONS; }
