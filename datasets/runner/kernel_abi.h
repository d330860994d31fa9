// What a compiled unit of kernels offers to the runner. One shared library holds many kernels and exports
// `cr_unit`; everything a launch needs besides this header lives inside that library.
#pragma once
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CR_ABI_VERSION = 1 };

// Decompositions that a launch can ask for.
enum { CR_DECOMPOSITIONS = 7 };

// Outcome of preparing or launching one candidate. Numbers are stored in measurement rows.
enum CrStatus { CR_OK = 0, CR_REFUSED = 1, CR_LAUNCH_FAILED = 2 };

// One GEMM as the kernel sees it (already swapped if the candidate is). Leading dimensions are packed.
// D = A * B, beta = 0; `d` also stands for C, which is never read.
struct CrGemm {
  int32_t m, n, k;
  void const* a;
  void const* b;
  void* d;
  void* workspace;         // at least CrKernel::workspace_bytes(...) bytes, 256-byte aligned
  int32_t device;
  int32_t sm_count;
};

// Choices made at run time. raster: 0 heuristic, 1 along M, 2 along N. swizzle: 1, 2, 4, 8.
// decomposition (Stream-K kernels only): 0 heuristic, 1 data parallel, 2 split-K, 3 Stream-K, 4 split-K whose partial
// sums are added in any order, 5 split-K whose slices store their partial sums apart and do not queue up, 6 the same with
// a second kernel that adds them. splits >= 1.
struct CrLaunch {
  int32_t raster, swizzle, decomposition, splits;
};

struct CrKernel {
  char const* name;        // cutlass_library procedural name
  int32_t shared_memory_bytes;  // GemmKernel::SharedStorageSize
  int32_t threads;         // threads per CTA
  uint64_t state_bytes;    // bytes of caller-owned memory (128-byte aligned) that hold one prepared launch
  uint64_t (*workspace_bytes)(CrGemm const*, CrLaunch const*);
  // Host-side set-up, done once per (candidate, problem): TMA descriptors, scheduler parameters, kernel attributes.
  int32_t (*prepare)(CrGemm const*, CrLaunch const*, void* state);
  // Enqueues the launch, preceded by the memset of the workspace where the kernel needs one. Asynchronous.
  int32_t (*launch)(void* state, cudaStream_t stream);
  // The grid of a prepared launch, three values; for diagnosis and features.
  void (*grid)(void const* state, int32_t* xyz);
};

struct CrUnit {
  int32_t abi_version;
  int32_t count;
  struct CrKernel const* kernels;
};

// The exported symbol `cr_unit`.
typedef struct CrUnit const* (*CrUnitFn)(void);

// The exported symbol `cr_decompositions`: how many decompositions the unit knows. A unit without it knows the first
// four and takes any other for the heuristic, so it must not be given one.
typedef int32_t (*CrDecompositionsFn)(void);

#ifdef __cplusplus
}
#endif
