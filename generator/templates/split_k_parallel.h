// Split-K whose slices do not queue up, for CUTLASS 4.2's cooperative SM90 GEMMs: a tile scheduler for GemmUniversal.
//
// CUTLASS's own split-K keeps one workspace tile per output tile: each slice of K waits for the one before it and adds
// its partial sums to that tile. Here every slice but a tile's last has a workspace slot of its own, stores its partial
// sums without waiting, and raises a flag. The last slice waits for the flags, adds the slots in a fixed order and runs
// the epilogue, so results are the same bits on every run. Where that are many bytes for one CTA, groups of slices are
// added up by their own last slice first. A slice waits only for slices with smaller work indices, so launches cannot
// deadlock where CUTLASS's own cannot. Who has seen a flag lowers it, so flags that were zero once need no memset again.
//
// With `separate_reduction` the last slice stores its partial sums too and there are no flags: a second kernel,
// launch_reduction() of split_k_reduction.h, adds the slots on all SMs and writes D. It costs a launch and spares one CTA
// the adding.
//
// Without `parallel_reduction` everything is as with cutlass::gemm::StreamKScheduler.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/gemm/kernel/tile_scheduler.hpp"
#include "cutlass/workspace.h"

namespace cutlass_ranker {

// Tag of the scheduler, in the place of cutlass::gemm::StreamKScheduler.
struct ParallelSplitKScheduler {};

// Which slices add up whose partial sums. Slices are grouped by `fan_in`; the last slice of a group adds the others to
// its own, then the last slices are grouped in the same way, until the last slice of all is left.
// gather(first, stride, count): slices first, first + stride ... (count of them) are added. publish(): the caller's sums
// are handed on. A slice publishes once; the last one never does.
template <class Gather, class Publish>
CUTLASS_HOST_DEVICE void combine_slices(uint32_t slice, uint32_t splits, uint32_t fan_in, Gather&& gather,
                                        Publish&& publish) {
  CUTLASS_PRAGMA_NO_UNROLL
  for (uint32_t stride = 1; stride < splits; stride *= fan_in) {
    uint32_t const span = stride * fan_in;
    uint32_t const group = slice / span * span;
    uint32_t const end = group + span < splits ? group + span : splits;
    if (slice + 1 != end) {
      publish();
      return;
    }
    if (uint32_t const count = (slice - group) / stride) gather(group + stride - 1, stride, count);
  }
}

template <class TileShape, class ClusterShape>
class ParallelSplitK
    : public cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90StreamK<TileShape, ClusterShape> {
  using Base = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90StreamK<TileShape, ClusterShape>;

 public:
  using WorkTileInfo = typename Base::WorkTileInfo;

  struct Arguments : Base::Arguments {
    bool parallel_reduction = false;  // only with DecompositionMode::SplitK
    bool separate_reduction = false;  // only with parallel_reduction; launch_reduction() has to follow
    // Flags of the caller's, flag_bytes() of them: zero before the first launch, and every launch leaves them zero.
    // Launches that may overlap need flags of their own. nullptr: in the workspace, zeroed before every launch.
    uint32_t* flags = nullptr;
  };

  struct Params : Base::Params {
    uint32_t fan_in = 0;  // of combine_slices; 0: CUTLASS's own reduction
    uint32_t* flags = nullptr;
    bool separate = false;  // launch_reduction() adds the slots
    uint32_t tiles_m = 0, tiles_n = 0;
  };

  static constexpr uint32_t kThreads = cutlass::NumThreadsPerWarpGroup;
  static constexpr uint32_t kTileElements = cute::size<0>(TileShape{}) * cute::size<1>(TileShape{});
  // Bytes of partial sums that one CTA reads in the time that one more hand-over between CTAs takes.
  static constexpr int64_t kHandOverBytes = 128 << 10;

  CUTLASS_HOST_DEVICE
  ParallelSplitK() {}

  CUTLASS_DEVICE
  explicit ParallelSplitK(Params const& params) : Base(params) {}

  // All slices at once, or in two steps of about the square root each if that saves more than it costs.
  CUTLASS_HOST_DEVICE
  static uint32_t choose_fan_in(uint32_t splits) {
    uint32_t root = 1;
    while (root * root < splits) ++root;
    int64_t const saved_tiles = int64_t(splits) + 1 - 2 * int64_t(root);
    return saved_tiles * kTileElements * int64_t(sizeof(float)) > kHandOverBytes ? root : splits;
  }

  CUTLASS_HOST_DEVICE
  static uint64_t slots(Params const& params) {
    uint64_t const splits = params.divmod_splits_.divisor;
    return params.separate ? uint64_t(params.tiles_m) * params.tiles_n * splits : params.units_per_problem_ * (splits - 1);
  }

  // Workspace: the slots, then one flag per slot and warpgroup unless the caller gives flags.
  CUTLASS_HOST_DEVICE
  static size_t partial_bytes(Params const& params) { return slots(params) * kTileElements * sizeof(float); }

  static size_t flag_bytes(Params const& params, uint32_t warpgroups) {
    return params.separate ? 0 : cutlass::round_nearest(slots(params) * warpgroups * sizeof(uint32_t), size_t{128});
  }

  // Which slice of its tile a piece of work is: the first `big_units_` slices have one k-tile more than the others.
  CUTLASS_HOST_DEVICE
  static uint32_t slice_index(Params const& params, WorkTileInfo const& work) {
    uint32_t const k_tile = static_cast<uint32_t>(work.K_idx);
    uint32_t const size = params.divmod_k_tiles_per_sk_unit_.divisor;
    uint32_t const in_big = params.big_units_ * (size + 1);
    return k_tile < in_big ? k_tile / (size + 1) : params.big_units_ + (k_tile - in_big) / size;
  }

  template <class ProblemShape>
  static Params to_underlying_arguments(ProblemShape problem_shape, TileShape tile_shape, ClusterShape cluster_shape,
                                        cutlass::KernelHardwareInfo const& hw_info, Arguments const& args,
                                        void* workspace, uint32_t epilogue_subtile = 1,
                                        uint32_t ktile_start_alignment_count = 1) {
    Params params;
    static_cast<typename Base::Params&>(params) =
        Base::to_underlying_arguments(problem_shape, tile_shape, cluster_shape, hw_info, args, workspace,
                                      epilogue_subtile, ktile_start_alignment_count);
    uint32_t const splits = params.divmod_splits_.divisor;
    params.fan_in = args.parallel_reduction && splits > 1 ? choose_fan_in(splits) : 0;
    params.separate = args.separate_reduction && params.fan_in != 0;
    params.tiles_m = cute::ceil_div(int(cute::get<0>(problem_shape)), int(cute::size<0>(tile_shape)));
    params.tiles_n = cute::ceil_div(int(cute::get<1>(problem_shape)), int(cute::size<1>(tile_shape)));
    auto* const in_workspace = reinterpret_cast<uint32_t*>(static_cast<uint8_t*>(workspace) + partial_bytes(params));
    params.flags = args.flags != nullptr ? args.flags : in_workspace;
    return params;
  }

  static bool can_implement(Arguments const& args) {
    bool const split = args.decomposition_mode == Base::DecompositionMode::SplitK;
    return Base::can_implement(args) && (split || !args.parallel_reduction) &&
           (args.parallel_reduction || !args.separate_reduction);
  }

  template <class ProblemShape, class ElementAccumulator>
  static size_t get_workspace_size(Arguments const& args, ProblemShape problem_shape,
                                   cutlass::KernelHardwareInfo const& hw_info, uint32_t mma_warp_groups,
                                   uint32_t epilogue_subtile = 1, uint32_t num_accumulator_mtxs = 1) {
    static_assert(sizeof(ElementAccumulator) == sizeof(float), "partial sums are float32");
    Params const params = described(args, problem_shape, hw_info);
    if (params.fan_in != 0) {
      return partial_bytes(params) + (args.flags != nullptr ? 0 : flag_bytes(params, mma_warp_groups));
    }
    return Base::template get_workspace_size<ProblemShape, ElementAccumulator>(
        args, problem_shape, hw_info, mma_warp_groups, epilogue_subtile, num_accumulator_mtxs);
  }

  template <class ProblemShape, class ElementAccumulator>
  static cutlass::Status initialize_workspace(Arguments const& args, void* workspace, cudaStream_t stream,
                                              ProblemShape const& problem_shape,
                                              cutlass::KernelHardwareInfo const& hw_info, uint32_t mma_warp_groups,
                                              uint32_t epilogue_subtile = 1, uint32_t num_accumulator_mtxs = 1,
                                              cutlass::CudaHostAdapter* cuda_adapter = nullptr) {
    Params const params = described(args, problem_shape, hw_info);
    if (params.fan_in == 0) {
      return Base::template initialize_workspace<ProblemShape, ElementAccumulator>(
          args, workspace, stream, problem_shape, hw_info, mma_warp_groups, epilogue_subtile, num_accumulator_mtxs,
          cuda_adapter);
    }
    if (workspace == nullptr) return cutlass::Status::kErrorWorkspaceNull;
    if (args.flags != nullptr || params.separate) return cutlass::Status::kSuccess;
    void* const flags = static_cast<uint8_t*>(workspace) + partial_bytes(params);
    return cutlass::zero_workspace(flags, flag_bytes(params, mma_warp_groups), stream, cuda_adapter);
  }

  CUTLASS_HOST_DEVICE
  static bool compute_epilogue(WorkTileInfo const& work, Params const& params) {
    return !params.separate && Base::compute_epilogue(work, params);
  }

  template <class Fragment>
  CUTLASS_DEVICE static void fixup(Params const& params, WorkTileInfo const& work, Fragment& accumulators,
                                   uint32_t warpgroups, uint32_t warpgroup) {
    if (params.fan_in == 0) {
      Base::fixup(params, work, accumulators, warpgroups, warpgroup);
      return;
    }
    constexpr int kAccumulators = decltype(cute::size(accumulators))::value;
    static_assert(kAccumulators % 4 == 0, "partial sums are moved by four");
    float* const sums = reinterpret_cast<float*>(accumulators.data());
    uint32_t thread = threadIdx.x % kThreads;
    uint32_t splits = params.divmod_splits_.divisor;
    float* workspace = static_cast<float*>(params.reduction_workspace_);
    // Unknown from here on, so that the compiler does not work out what follows ahead of the mainloop, whose registers
    // it would take.
    asm volatile("" : "+r"(thread), "+r"(splits), "+l"(workspace));
    // A warpgroup has its part of each slot to itself, 16 bytes of each of its threads side by side.
    uint32_t const place = warpgroup * (kAccumulators * kThreads) + 4 * thread;
    auto const publish = [&](uint64_t slot) {
      float* const to = workspace + slot * kTileElements + place;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kAccumulators; i += 4) store(to + i * kThreads, sums + i);
    };
    if (params.separate) {
      // The reduction may be launched while this kernel still runs; it waits for its end.
      asm volatile("griddepcontrol.launch_dependents;\n");
      if (uint32_t(work.M_idx) >= params.tiles_m || uint32_t(work.N_idx) >= params.tiles_n) return;  // padding
      uint64_t const tile = uint64_t(work.M_idx) * params.tiles_n + work.N_idx;
      publish(tile * splits + slice_index(params, work));
      return;
    }
    uint64_t const first_slot = Base::output_tile_index(params, work) * (splits - 1);
    float* const slots_base = workspace + first_slot * kTileElements + place;
    uint32_t* const flags = params.flags + first_slot * warpgroups + warpgroup;
    uint32_t const slice = slice_index(params, work);
    combine_slices(
        slice, splits, params.fan_in,
        [&](uint32_t first, uint32_t stride, uint32_t count) {
          for (uint32_t i = thread; i < count; i += kThreads) wait(flags + (first + i * stride) * warpgroups);
          synchronise(warpgroup);
          add<kAccumulators>(sums, slots_base + uint64_t(first) * kTileElements, uint64_t(stride) * kTileElements,
                             count);
        },
        [&] {
          publish(first_slot + slice);
          synchronise(warpgroup);
          if (thread == 0) mark(flags + slice * warpgroups);
        });
  }

 private:
  template <class ProblemShape>
  static Params described(Arguments const& args, ProblemShape const& problem_shape,
                          cutlass::KernelHardwareInfo const& hw_info) {
    auto const shape = cute::append<4>(problem_shape, cute::Int<1>{});
    return to_underlying_arguments(shape, TileShape{}, ClusterShape{}, hw_info, args, nullptr);
  }

  // Adds `count` slots to the thread's sums, one after the other. Several loads are under way at a time, as many as
  // registers allow beside the sums.
  template <int Accumulators>
  CUTLASS_DEVICE static void add(float* sums, float const* slot, uint64_t distance, uint32_t count) {
    constexpr int kVectors = Accumulators / 4;
    constexpr int kLoads = Accumulators <= 64 ? 16 : Accumulators <= 128 ? 8 : Accumulators <= 192 ? 4 : 2;
    constexpr int kChunk = kVectors < kLoads ? kVectors : kLoads;
    constexpr int kSlots = kLoads / kChunk;
    CUTLASS_PRAGMA_NO_UNROLL
    for (uint32_t done = 0; done < count; done += kSlots, slot += kSlots * distance) {
      CUTLASS_PRAGMA_UNROLL
      for (int begin = 0; begin < kVectors; begin += kChunk) {
        float part[kSlots][kChunk][4];
        CUTLASS_PRAGMA_UNROLL
        for (int s = 0; s < kSlots; ++s) {
          CUTLASS_PRAGMA_UNROLL
          for (int i = 0; i < kChunk; ++i) {
            if (begin + i < kVectors) {
              load(part[s][i], slot + s * distance + 4 * (begin + i) * kThreads, done + s < count);
            }
          }
        }
        CUTLASS_PRAGMA_UNROLL
        for (int s = 0; s < kSlots; ++s) {
          CUTLASS_PRAGMA_UNROLL
          for (int i = 0; i < kChunk; ++i) {
            CUTLASS_PRAGMA_UNROLL
            for (int e = 0; e < 4; ++e) {
              if (begin + i < kVectors) sums[4 * (begin + i) + e] += part[s][i][e];
            }
          }
        }
      }
    }
  }

  // Threads of one consumer warpgroup.
  CUTLASS_DEVICE static void synchronise(uint32_t warpgroup) {
    using cutlass::arch::NamedBarrier;
    using cutlass::arch::ReservedNamedBarriers;
    if (warpgroup == 0) {
      NamedBarrier::sync(kThreads, ReservedNamedBarriers::StreamkBarrier0);
    } else {
      NamedBarrier::sync(kThreads, ReservedNamedBarriers::StreamkBarrier1);
    }
  }

  // The flag is seen only after everything that the warpgroup stored before synchronise().
  CUTLASS_DEVICE static void mark(uint32_t* flag) {
    asm volatile("fence.acq_rel.gpu;\n st.relaxed.gpu.global.u32 [%0], 1;\n" ::"l"(flag) : "memory");
  }

  // Waits for a flag and lowers it.
  CUTLASS_DEVICE static void wait(uint32_t* flag) {
    uint32_t raised;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(raised) : "l"(flag) : "memory");
    } while (raised == 0);
    asm volatile("st.relaxed.gpu.global.u32 [%0], 0;\n" ::"l"(flag) : "memory");
  }

  CUTLASS_DEVICE static void store(float* to, float const* from) {
    asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"l"(to), "f"(from[0]), "f"(from[1]), "f"(from[2]),
                 "f"(from[3])
                 : "memory");
  }

  // Four values, zeros unless `wanted`. Not from L1, which is not coherent.
  CUTLASS_DEVICE static void load(float (&to)[4], float const* from, bool wanted) {
    asm volatile(
        "{\n"
        " .reg .pred wanted;\n"
        " setp.ne.u32 wanted, %5, 0;\n"
        " mov.f32 %0, 0f00000000;\n"
        " mov.f32 %1, 0f00000000;\n"
        " mov.f32 %2, 0f00000000;\n"
        " mov.f32 %3, 0f00000000;\n"
        " @wanted ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];\n"
        "}\n"
        : "=&f"(to[0]), "=&f"(to[1]), "=&f"(to[2]), "=&f"(to[3])
        : "l"(from), "r"(static_cast<uint32_t>(wanted)));
  }
};

}  // namespace cutlass_ranker

namespace cutlass::gemm::kernel::detail {

template <class TileShape, class ClusterShape, uint32_t SchedulerPipelineStageCount>
struct TileSchedulerSelector<cutlass_ranker::ParallelSplitKScheduler, arch::Sm90, TileShape, ClusterShape,
                             SchedulerPipelineStageCount> {
  using Scheduler = cutlass_ranker::ParallelSplitK<TileShape, ClusterShape>;
};

}  // namespace cutlass::gemm::kernel::detail
