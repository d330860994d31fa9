// A unit of naive GEMM kernels, right and faulty, that exercises the runner without CUTLASS.
#include "kernel_abi.h"

#include <cuda_runtime.h>

namespace {

enum Behaviour { kGood, kWrong, kTrap, kHang, kRefused, kLaunchFailed, kWorkspace, kHangLater, kSlow };

__device__ float load(uint16_t bits) { return __uint_as_float(static_cast<uint32_t>(bits) << 16); }

__device__ uint16_t store(float value) {
  uint32_t const bits = __float_as_uint(value);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// A row-major, B column-major, D row-major (or column-major).
template <bool ColumnMajorD>
__global__ void gemm(uint16_t const* a, uint16_t const* b, uint16_t* d, int m, int n, int k, int behaviour,
                     uint32_t const* workspace) {
  int const i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
  if (behaviour == kTrap) __trap();
  if (behaviour == kHang) {
    uint16_t const volatile* never = a;
    while (*never != 0xFFFFu || true) {
    }
  }
  if (i >= m || j >= n) return;
  float sum = 0.0f;
  int const passes = behaviour == kSlow ? 16 : 1;
  for (int pass = 0; pass < passes; ++pass) {
    float again = 0.0f;
    for (int p = 0; p < k; ++p) again += load(a[int64_t{i} * k + p]) * load(b[int64_t{j} * k + p]);
    sum = pass == 0 ? again : fminf(sum, again);
    __threadfence();  // the next pass must load everything again
  }
  if (behaviour == kWrong && i == 0 && j == 0) sum += 1.0f + fabsf(sum);
  // The workspace must have been zeroed by the launch's own memset, although every launch dirties it.
  if (behaviour == kWorkspace) sum += static_cast<float>(workspace[0]);
  d[ColumnMajorD ? int64_t{j} * m + i : int64_t{i} * n + j] = store(sum);
}

__global__ void dirty(uint32_t* workspace) { workspace[0] = 7; }

struct State {
  CrGemm gemm;
  int launches;
};

constexpr uint64_t kWorkspaceBytes = 1 << 20;

template <int B>
uint64_t workspace_bytes(CrGemm const*, CrLaunch const*) {
  return B == kWorkspace ? kWorkspaceBytes : 0;
}

template <int B>
int32_t prepare(CrGemm const* gemm, CrLaunch const*, void* state) {
  if (B == kRefused) return CR_REFUSED;
  *static_cast<State*>(state) = State{*gemm, 0};
  return CR_OK;
}

template <int B, bool ColumnMajorD>
int32_t launch(void* memory, cudaStream_t stream) {
  State* state = static_cast<State*>(memory);
  CrGemm const& g = state->gemm;
  ++state->launches;
  int behaviour = B;
  if (B == kHangLater) behaviour = state->launches > 4 ? kHang : kGood;
  uint32_t* workspace = static_cast<uint32_t*>(g.workspace);
  if (B == kWorkspace && cudaMemsetAsync(workspace, 0, 256, stream) != cudaSuccess) return CR_LAUNCH_FAILED;
  dim3 const block(B == kLaunchFailed ? 2048 : 16, 16);
  dim3 const grid((g.m + 15) / 16, (g.n + 15) / 16);
  gemm<ColumnMajorD><<<grid, block, 0, stream>>>(static_cast<uint16_t const*>(g.a), static_cast<uint16_t const*>(g.b),
                                                 static_cast<uint16_t*>(g.d), g.m, g.n, g.k, behaviour, workspace);
  if (B == kWorkspace) dirty<<<1, 1, 0, stream>>>(workspace);
  return cudaGetLastError() == cudaSuccess ? CR_OK : CR_LAUNCH_FAILED;
}

void grid(void const*, int32_t* xyz) { xyz[0] = xyz[1] = xyz[2] = 1; }

template <int B, bool ColumnMajorD = false>
constexpr CrKernel entry(char const* name) {
  return {name, 0, 256, sizeof(State), &workspace_bytes<B>, &prepare<B>, &launch<B, ColumnMajorD>, &grid};
}

CrKernel const kernels[] = {
    entry<kGood>("good"),
    entry<kGood, true>("good_swapped"),
    entry<kWrong>("wrong"),
    entry<kTrap>("trap"),
    entry<kHang>("hang"),
    entry<kRefused>("refused"),
    entry<kLaunchFailed>("launch_failed"),
    entry<kWorkspace>("workspace"),
    entry<kHangLater>("hang_later"),
    entry<kSlow>("slow"),
};

CrUnit const unit = {CR_ABI_VERSION, sizeof(kernels) / sizeof(kernels[0]), kernels};

}  // namespace

extern "C" __attribute__((visibility("default"))) CrUnit const* cr_unit() { return &unit; }
